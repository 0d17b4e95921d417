//! An operator, an account and a user, as NATS's decentralised credentials are made of (JWTs signed by nkeys).

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use nkeys::KeyPair;
use serde_json::{Value, json};

/// What a server and a user are given.
pub(crate) struct Trust {
    /// The server's configuration: whom it trusts, and the account.
    pub(crate) server: String,
    /// The user's `.creds` file.
    pub(crate) creds: String,
}

impl Trust {
    pub(crate) fn new() -> Self {
        let (operator, account, user) =
            (KeyPair::new_operator(), KeyPair::new_account(), KeyPair::new_user());
        let operator_jwt =
            sign(&operator, &operator.public_key(), &json!({"type": "operator", "version": 2}));
        let limits = json!({
            "subs": -1, "data": -1, "payload": -1, "imports": -1, "exports": -1, "wildcards": true, "conn": -1, "leaf": -1,
        });
        let account_claims = json!({"type": "account", "version": 2, "limits": limits});
        let account_jwt = sign(&operator, &account.public_key(), &account_claims);
        let user_claims = json!({"type": "user", "version": 2, "subs": -1, "data": -1, "payload": -1});
        let user_jwt = sign(&account, &user.public_key(), &user_claims);
        let server = format!(
            "operator: \"{operator_jwt}\"\nresolver: MEMORY\nresolver_preload: {{ {}: \"{account_jwt}\" }}\n",
            account.public_key()
        );
        let block =
            |kind: &str, text: &str| format!("-----BEGIN {kind}-----\n{text}\n------END {kind}------\n\n");
        let creds = block("NATS USER JWT", &user_jwt) + &block("USER NKEY SEED", &user.seed().unwrap());
        Self { server, creds }
    }
}

fn sign(issuer: &KeyPair, subject: &str, claims: &Value) -> String {
    let encode = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let header = encode(&json!({"typ": "JWT", "alg": "ed25519-nkey"}));
    let body = encode(&json!({
        "jti": subject, "iat": 1_700_000_000, "iss": issuer.public_key(), "sub": subject, "name": "test", "nats": claims,
    }));
    let signed = format!("{header}.{body}");
    let signature = URL_SAFE_NO_PAD.encode(issuer.sign(signed.as_bytes()).unwrap());
    format!("{signed}.{signature}")
}
