//! A program that tests start, kill, stop, freeze and start again, with all that it prints.

use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::up::{DEADLINE, collect};

const CACHED_BINARIES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../.cache/bin");

/// A program, running or not; killed when dropped.
#[derive(Debug)]
pub(crate) struct Process {
    name: String,
    program: String,
    args: Vec<String>,
    child: Option<Child>,
    lines: Arc<Mutex<Vec<String>>>,
}

impl Process {
    /// Starts a program of the path, or else of `.cache/bin`.
    pub(crate) fn start_new(name: &str, program: &str, args: &str) -> Self {
        let mut process = Self {
            name: name.to_owned(),
            program: program.to_owned(),
            args: args.split_whitespace().map(str::to_owned).collect(),
            child: None,
            lines: Arc::default(),
        };
        process.start();
        process
    }

    /// Starts a part of Sightline.
    pub(crate) fn sightline(name: &str, part: &str, args: &str) -> Self {
        Self::start_new(name, env!("CARGO_BIN_EXE_sightline"), &format!("{part} {args}"))
    }

    /// Starts it, again.
    pub(crate) fn start(&mut self) {
        let spawn = |program: &str| {
            let mut command = Command::new(program);
            let command = command.args(&self.args).stdin(Stdio::null());
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()
        };
        let child = spawn(&self.program).or_else(|_| spawn(&format!("{CACHED_BINARIES}/{}", self.program)));
        let Ok(mut child) = child else {
            panic!("no {} on the path or in .cache/bin: run scripts/servers.sh", self.program)
        };
        collect(child.stdout.take().unwrap(), Arc::clone(&self.lines));
        collect(child.stderr.take().unwrap(), Arc::clone(&self.lines));
        self.child = Some(child);
    }

    /// Ends it without a chance to say anything.
    pub(crate) fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    /// Stops it where it stands: its sockets stay open and nobody answers.
    pub(crate) fn freeze(&self) {
        self.signal("-STOP");
    }

    /// Lets it go on.
    pub(crate) fn thaw(&self) {
        self.signal("-CONT");
    }

    /// Asks it to end, and waits until it has.
    pub(crate) async fn terminate(&mut self) -> ExitStatus {
        self.signal("-TERM");
        let mut child = self.child.take().unwrap();
        let end = tokio::time::Instant::now() + DEADLINE;
        loop {
            if let Some(status) = child.try_wait().unwrap() {
                return status;
            }
            assert!(tokio::time::Instant::now() < end, "{} does not end:\n{}", self.name, self.log());
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    fn signal(&self, signal: &str) {
        let pid = self.child.as_ref().unwrap().id().to_string();
        assert!(
            Command::new("kill").args([signal, &pid]).status().unwrap().success(),
            "{signal} {}",
            self.name
        );
    }

    /// What everybody on the machine can read of how it was started.
    pub(crate) fn command_line(&self) -> String {
        let pid = self.child.as_ref().unwrap().id();
        std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap().replace('\0', " ")
    }

    /// All that it has printed, each line with its name before it.
    pub(crate) fn log(&self) -> String {
        self.lines.lock().iter().map(|line| format!("{}: {line}\n", self.name)).collect()
    }

    /// The lines after the first `from` that are a WARN or an ERROR, and how many lines there are now.
    pub(crate) fn loud_since(&self, from: usize) -> (Vec<String>, usize) {
        let lines = self.lines.lock();
        let loud =
            |line: &&String| line.contains(" WARN ") || line.contains(" ERROR ") || line.contains("panicked");
        let since = lines.get(from..).unwrap_or_default();
        (since.iter().filter(loud).map(|line| format!("{}: {line}", self.name)).collect(), lines.len())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}
