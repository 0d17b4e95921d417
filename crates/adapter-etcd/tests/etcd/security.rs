//! Users and certificates: who is let in, and what those are told who are not.

use std::time::Duration;

use adapter_etcd::config::Error;
use adapter_etcd::{Config, EtcdRegistry, Refusal, Tls};
use ports::Registry;
use ports::registry::{Entry, Event};
use test_certificates::Authority;
use tokio::time::{sleep, timeout};

use crate::server::{MEMBER, PATIENCE, ROOT, Server};

const PREFIX: &str = "/conformance/";
const TTL: Duration = Duration::from_secs(10);

/// Asks once, as a process does when it starts.
async fn check(config: &Config, prefix: &str) -> Result<(), Error> {
    let registry = EtcdRegistry::connect(config).await.unwrap();
    timeout(PATIENCE, registry.check(prefix)).await.unwrap()
}

async fn refused(config: &Config, prefix: &str, expected: Refusal) {
    let error = check(config, prefix).await.unwrap_err();
    let Error::Refused { endpoints, reason, .. } = &error else { panic!("{error:?}") };
    assert_eq!((endpoints, *reason), (&config.endpoints.join(","), expected), "{error:?}");
    assert!(error.to_string().contains(endpoints.as_str()), "{error}");
    assert!(!format!("{error:?}").contains("wrong"), "{error:?}");
}

fn user((name, password): (&str, &str)) -> Option<(String, String)> {
    Some((name.to_owned(), password.to_owned()))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn users_must_be_known_and_may_do_what_their_role_says() {
    let server = Server::start_secure().await;
    let with = |user| Config { user, ..server.config() };
    check(&with(user(MEMBER)), PREFIX).await.unwrap();
    check(&with(user(ROOT)), "/").await.unwrap();
    refused(&with(user((MEMBER.0, "wrong"))), PREFIX, Refusal::Credentials).await;
    refused(&with(user(("nobody", "wrong"))), PREFIX, Refusal::Credentials).await;
    refused(&with(user(MEMBER)), "/elsewhere/", Refusal::Permission).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_where_none_are_known_is_a_mistake() {
    let server = Server::start().await;
    check(&server.config(), PREFIX).await.unwrap();
    refused(&Config { user: user(MEMBER), ..server.config() }, PREFIX, Refusal::Credentials).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn certificates_must_be_trusted() {
    let server = Server::start_secure().await;
    let tls = server.tls.clone().unwrap();
    let other = Authority::new(server.dir.path(), "other");
    let with = |tls| Config { tls, ..server.config() };
    refused(
        &with(Some(Tls { ca_file: Some(other.file.clone()), ..tls.clone() })),
        PREFIX,
        Refusal::Certificate,
    )
    .await;
    let stranger = other.issue(&["client"]);
    for client in [None, Some((stranger.certificate, stranger.key))] {
        let error = check(&with(Some(Tls { client, ..tls.clone() })), PREFIX).await;
        assert!(error.is_err(), "a client without a certificate of the authority was let in");
    }
    let trusts_nobody = EtcdRegistry::connect(&with(None)).await;
    assert!(matches!(trusts_nobody, Err(Error::NoAuthority { .. })), "{trusts_nobody:?}");
    let named = Tls { domain: Some("elsewhere".to_owned()), ..tls };
    refused(&with(Some(named)), PREFIX, Refusal::Certificate).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_that_is_away_is_only_late() {
    let server = Server::start_secure().await;
    server.kill().await;
    let error = check(&server.config(), PREFIX).await.unwrap_err();
    assert!(matches!(error, Error::Late { .. }), "{error:?}");
}

/// Tokens live for a second here, and none survives a restart.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_expired_token_is_replaced_without_a_word() {
    let server = Server::start_secure().await;
    let registry = server.registry().await;
    let entry = Entry { key: format!("{PREFIX}a"), value: "1".into() };
    let lease = registry.register(entry.clone(), TTL).await.unwrap();
    let mut watch = registry.watch(PREFIX).await.unwrap();
    assert_eq!(watch.next().await, Some(Event::Reset(vec![entry.clone()])));
    for restart in [false, true] {
        if restart {
            server.kill().await;
            server.run().await;
        }
        let mut value = 1;
        let changing = async {
            // Beyond the life of any token, whatever has been used in between.
            for _ in 0..3 {
                sleep(Duration::from_millis(1500)).await;
                value += 1;
                while lease.update(format!("{value}{restart}").into()).await.is_err() {
                    assert!(restart, "a token expired and was not replaced");
                    sleep(Duration::from_millis(50)).await;
                }
            }
        };
        timeout(PATIENCE, changing).await.unwrap();
        let last = Entry { value: format!("{value}{restart}").into(), ..entry.clone() };
        let seen = async {
            loop {
                match watch.next().await.unwrap() {
                    Event::Reset(entries) if entries == [last.clone()] => return,
                    Event::Put(put) if put == last => return,
                    Event::Reset(_) | Event::Put(_) | Event::Deleted { .. } => {}
                }
            }
        };
        timeout(PATIENCE, seen).await.unwrap();
    }
    assert!(timeout(Duration::from_millis(500), lease.lost()).await.is_err());
}
