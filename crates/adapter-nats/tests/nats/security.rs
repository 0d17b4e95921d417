//! Credentials and certificates: who is let in, and what those are told who are not.

use std::time::Duration;

use adapter_nats::config::Error;
use adapter_nats::{Config, Credentials, NatsBus, Refusal, Tls};
use nkeys::KeyPair;
use ports::Bus;
use ports::bus::Link;
use test_certificates::Authority;
use tokio::time::timeout;

use crate::jwt::Trust;
use crate::server::{PATIENCE, Server, link_is};

/// A refusal comes at once: nobody waits for a server that answered.
const AT_ONCE: Duration = Duration::from_secs(5);

async fn admitted(config: &Config) {
    let bus = NatsBus::connect(config).await.unwrap();
    link_is(&bus, Link::Up).await;
}

async fn refused(config: &Config, expected: Refusal) {
    let outcome = timeout(AT_ONCE, NatsBus::connect(config)).await.unwrap();
    let error = outcome.err().unwrap();
    let Error::Refused { servers, reason, .. } = &error else { panic!("{error:?}") };
    assert_eq!((servers, *reason), (&config.servers.join(","), expected), "{error:?}");
    assert!(error.to_string().contains(servers.as_str()), "{error}");
}

fn user(password: &str) -> Credentials {
    Credentials::User { name: "sightline".to_owned(), password: password.to_owned() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_password_must_be_right() {
    let server = Server::start_secure(&["--user", "sightline", "--pass", "right"], false).await;
    let with = |credentials| Config { credentials, ..server.config() };
    admitted(&with(user("right"))).await;
    for wrong in [user("wrong"), Credentials::None, Credentials::Token("right".to_owned())] {
        refused(&with(wrong), Refusal::Credentials).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_must_be_right() {
    let server = Server::start_secure(&["--auth", "right"], false).await;
    let with = |token: &str| Config { credentials: Credentials::Token(token.to_owned()), ..server.config() };
    admitted(&with("right")).await;
    refused(&with("wrong"), Refusal::Credentials).await;
}

/// Writes a configuration file, and starts a server with it over TLS.
async fn configured(text: &str) -> Server {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("server.conf");
    std::fs::write(&file, text).unwrap();
    let server = Server::start_secure(&["--config", file.to_str().unwrap()], false).await;
    admits_nobody(&server).await;
    server
}

/// Whatever the server asks for, it is not nothing.
async fn admits_nobody(server: &Server) {
    refused(&server.config(), Refusal::Credentials).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_nkey_must_be_known() {
    let (known, other) = (KeyPair::new_user(), KeyPair::new_user());
    let text = format!("authorization: {{ users: [ {{ nkey: {} }} ] }}", known.public_key());
    let server = configured(&text).await;
    let with =
        |pair: &KeyPair| Config { credentials: Credentials::Nkey(pair.seed().unwrap()), ..server.config() };
    admitted(&with(&known)).await;
    refused(&with(&other), Refusal::Credentials).await;
    let nonsense = Config { credentials: Credentials::Nkey("SUnonsense".to_owned()), ..server.config() };
    refused(&nonsense, Refusal::Credentials).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_creds_file_must_be_of_a_trusted_operator() {
    let (ours, theirs) = (Trust::new(), Trust::new());
    let server = configured(&ours.server).await;
    let with = |creds: &str| Config { credentials: Credentials::Creds(creds.to_owned()), ..server.config() };
    admitted(&with(&ours.creds)).await;
    refused(&with(&theirs.creds), Refusal::Credentials).await;
    let malformed = NatsBus::connect(&with("no creds")).await;
    assert!(matches!(malformed, Err(Error::Credentials(_))), "{malformed:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn certificates_must_be_trusted_on_both_sides() {
    let server = Server::start_secure(&[], true).await;
    admitted(&server.config()).await;
    let tls = server.tls.clone().unwrap();
    let other = Authority::new(server.dir.path(), "other");
    let stranger = other.issue(&["client"]);
    let with = |tls| Config { tls: Some(tls), ..server.config() };
    // A server of another authority, a client of another, and a client of none.
    refused(&with(Tls { ca_file: Some(other.file.clone()), ..tls.clone() }), Refusal::Certificate).await;
    let foreign = Some((stranger.certificate, stranger.key));
    refused(&with(Tls { client: foreign, ..tls.clone() }), Refusal::Certificate).await;
    refused(&with(Tls { client: None, ..tls.clone() }), Refusal::Certificate).await;
    let missing = Some(server.dir.path().join("none.pem"));
    refused(&with(Tls { ca_file: missing, ..tls }), Refusal::Files).await;
}

#[tokio::test]
async fn credentials_in_an_address_are_refused_and_not_shown() {
    let config =
        Config { servers: vec!["nats://sightline:hush@127.0.0.1:4222".to_owned()], ..Config::default() };
    let error = NatsBus::connect(&config).await.unwrap_err();
    assert!(
        matches!(&error, Error::InAddress { server } if server == "nats://***@127.0.0.1:4222"),
        "{error:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_comes_late_and_refuses_is_complained_of() {
    let server = Server::start(&["--user", "sightline", "--pass", "right"]).await;
    server.kill().await;
    let bus = server.bus().await;
    assert_eq!(*bus.link().borrow(), Link::Down);
    server.run().await;
    let told = async {
        while !bus.trouble().is_some_and(|trouble| trouble.contains("authorization violation")) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(PATIENCE, told).await.unwrap();
}
