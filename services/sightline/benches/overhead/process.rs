//! The processes under measurement.

use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, bail};

/// A child process that is killed when dropped.
pub(crate) struct Child(std::process::Child);

impl Child {
    /// Starts one simulated engine without simulated time.
    pub(crate) fn engine_sim(
        (port, events, replay): (u16, u16, u16),
        media_dir: &Path,
    ) -> anyhow::Result<Self> {
        Self::start(&[
            "engine-sim".to_owned(),
            format!("--listen=127.0.0.1:{port}"),
            "--model=tiny-vl".to_owned(),
            format!("--model-dir={}", model_dir()),
            "--block-size=16".to_owned(),
            "--kv-blocks=65536".to_owned(),
            "--speed=0".to_owned(),
            format!("--allowed-local-media-path={}", media_dir.display()),
            format!("--kv-events=tcp://*:{events}"),
            format!("--kv-replay=tcp://127.0.0.1:{replay}"),
        ])
    }

    /// Starts one frontend and one agent on that engine, with more options.
    pub(crate) fn router(
        (engine, events, replay): (u16, u16, u16),
        port: u16,
        more: &[String],
    ) -> anyhow::Result<Self> {
        let own = [
            "up".to_owned(),
            format!("--port={port}"),
            "--frontends=1".to_owned(),
            format!("--model-dir={}", model_dir()),
            "--media-allow-net=127.0.0.0/8".to_owned(),
            format!(
                "--engine=http://127.0.0.1:{engine},kv-events=tcp://127.0.0.1:{events},replay=tcp://127.0.0.1:{replay}"
            ),
        ];
        Self::start(&[&own[..], more].concat())
    }

    fn start(args: &[String]) -> anyhow::Result<Self> {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sightline"));
        command.args(args).stdin(Stdio::null()).stdout(Stdio::null());
        Ok(Self(command.spawn().context("cannot start the binary")?))
    }

    /// Waits until a URL answers 200.
    pub(crate) async fn ready(&self, url: &str, deadline: Duration) -> anyhow::Result<()> {
        let client = reqwest::Client::builder().no_proxy().build()?;
        let poll = async {
            loop {
                if client.get(url).send().await.is_ok_and(|answer| answer.status().is_success()) {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        match tokio::time::timeout(deadline, poll).await {
            Ok(()) => Ok(()),
            Err(_) => bail!("{url} did not answer within {deadline:?}"),
        }
    }

    /// Sums the run time of the process's threads, in microseconds.
    pub(crate) fn cpu_us(&self) -> anyhow::Result<f64> {
        let mut total_ns = 0.0;
        for task in fs::read_dir(format!("/proc/{}/task", self.0.id()))? {
            let text = fs::read_to_string(task?.path().join("schedstat"))?;
            let run_ns: f64 = text.split_whitespace().next().unwrap_or("0").parse()?;
            total_ns += run_ns;
        }
        Ok(total_ns / 1000.0)
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if self.0.kill().is_ok() {
            self.0.wait().ok();
        }
    }
}

/// Finds ports that are free now.
pub(crate) fn free_ports<const N: usize>() -> anyhow::Result<[u16; N]> {
    let listeners: Vec<TcpListener> =
        (0..N).map(|_| TcpListener::bind(("127.0.0.1", 0))).collect::<Result<_, _>>()?;
    let mut ports = [0; N];
    for (port, listener) in ports.iter_mut().zip(&listeners) {
        *port = listener.local_addr()?.port();
    }
    Ok(ports)
}

fn model_dir() -> String {
    format!("{}/../../fixtures/models/tiny-vl", env!("CARGO_MANIFEST_DIR"))
}
