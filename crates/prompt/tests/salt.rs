//! A body whose cache is kept apart from others'.

#![expect(clippy::unwrap_used, reason = "helpers of tests may fail the test")]

use bytes::Bytes;
use prompt::{ChatRequest, CompletionRequest, MediaEdit};

/// Salts a body, given without its outer braces, in both kinds of request where it is one.
fn check(members: &str, expected: Option<&str>) {
    for (kind, more) in
        [("messages", r#""messages":[{"role":"user","content":"hi"}]"#), ("prompt", r#""prompt":"hi""#)]
    {
        let body = |members: &str| {
            let comma = if members.is_empty() || members.ends_with(',') { "" } else { "," };
            Bytes::from(format!("{{{members}{comma}{more}}}"))
        };
        let sent = body(members);
        let salted = match kind {
            "messages" => ChatRequest::parse(&sent).unwrap().outline_salted(&[], "S\"1"),
            _ => CompletionRequest::parse(&sent).unwrap().outline_salted("S\"1"),
        };
        let salted = salted.map(|outline| Bytes::from(outline.fill(|_| None).concat()));
        match expected {
            Some(expected) => assert_eq!(salted, Ok(body(expected)), "{members}"),
            None => assert_eq!(salted.unwrap_err().param(), Some("cache_salt"), "{members}"),
        }
    }
}

#[test]
fn the_salt_is_replaced_wherever_an_engine_would_find_it() {
    check("", Some(r#""cache_salt":"S\"1","#));
    check(r#""a":1"#, Some(r#""cache_salt":"S\"1","a":1"#));
    check(r#""cache_salt" : "mine""#, Some(r#""cache_salt" : "S\"1""#));
    check(
        r#""a":{"cache_salt":"x"},"cache_salt":null"#,
        Some(r#""a":{"cache_salt":"x"},"cache_salt":"S\"1""#),
    );
    check(r#""cache\u005fsalt":"mine""#, Some(r#""cache\u005fsalt":"S\"1""#));
    // Engines take the last one; nobody has a reason to give two.
    check(r#""cache_salt":"a","cache_salt":"b""#, None);
    check(r#""cache_salt":"a","cache\u005fsalt":"b""#, None);
}

#[test]
fn media_and_salt_change_together() {
    let part = r#"{"type":"image_url","image_url":{"url":"http://h/a"}}"#;
    let body = format!(r#"{{"messages":[{{"role":"user","content":[{part}]}}],"cache_salt":"mine"}}"#);
    let request = ChatRequest::parse(&Bytes::from(body)).unwrap();
    let edit = MediaEdit { index: 0, uuid: Some("X".to_owned()), replaces_url: true, unnames: false };
    let outline = request.outline_salted(&[edit], "S").unwrap();
    let salted = outline.fill(|_| Some(Bytes::from_static(b"http://m/1"))).concat();
    let part = r#"{"uuid":"X","type":"image_url","image_url":{"url":"http://m/1"}}"#;
    let expected = format!(r#"{{"messages":[{{"role":"user","content":[{part}]}}],"cache_salt":"S"}}"#);
    assert_eq!(String::from_utf8(salted).unwrap(), expected);
}
