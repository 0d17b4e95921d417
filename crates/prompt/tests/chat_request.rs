//! What is read from chat bodies, what is refused, and what is emitted again.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

use bytes::Bytes;
use prompt::{ChatRequest, MediaEdit, MediaKind, MediaSource};
use proptest::prelude::{Just, Strategy, any, prop, prop_assert_eq, prop_oneof, proptest};
use serde_json::{Value, json};

fn parse(body: &Value) -> ChatRequest {
    ChatRequest::parse(&Bytes::from(body.to_string())).unwrap()
}

fn user(content: &Value) -> Value {
    json!({"messages": [{"role": "user", "content": content}]})
}

#[track_caller]
fn refused(body: &str, param: Option<&str>, message: &str) {
    let error = ChatRequest::parse(&Bytes::copy_from_slice(body.as_bytes())).unwrap_err();
    assert_eq!((error.param(), error.to_string().as_str()), (param, message));
}

#[test]
fn refuses_bodies_that_engines_refuse() {
    let part = |part: &str| format!(r#"{{"messages":[{{"role":"user","content":[{part}]}}]}}"#);
    let in_part = Some("messages[0].content[0]");
    refused("[]", Some("body"), "`body` must be an object");
    refused("{}", Some("messages"), "`messages` is required");
    refused(r#"{"messages":{}}"#, Some("messages"), "`messages` must be an array");
    refused(r#"{"messages":[]}"#, Some("messages"), "`messages` must hold at least one message");
    refused(r#"{"messages":["x"]}"#, Some("messages[0]"), "`messages[0]` must be an object");
    refused(r#"{"messages":[{"content":"x"}]}"#, Some("messages[0].role"), "`messages[0].role` is required");
    refused(r#"{"messages":[{"role":5}]}"#, Some("messages[0].role"), "`messages[0].role` must be a string");
    refused(
        r#"{"messages":[{"role":"user","content":5}]}"#,
        Some("messages[0].content"),
        "`messages[0].content` must be a string or an array of parts",
    );
    refused(r#"{"model":5,"messages":[]}"#, Some("model"), "`model` must be a string");
    refused(r#"{"stream":"maybe","messages":[]}"#, Some("stream"), "`stream` must be a boolean");
    refused(r#"{"max_tokens":1.5,"messages":[]}"#, Some("max_tokens"), "`max_tokens` must be an integer");
    refused(r#"{"max_tokens":-1,"messages":[]}"#, Some("max_tokens"), "`max_tokens` is out of range");
    refused(
        r#"{"cache_salt":"","messages":[]}"#,
        Some("cache_salt"),
        "`cache_salt` must be a non-empty string",
    );
    refused(
        r#"{"chat_template":"x","messages":[]}"#,
        Some("chat_template"),
        "`chat_template` is set by the server, not by requests",
    );
    refused(
        &part(r#"{"type":"image_url","image_url":"http://h/a"}"#),
        Some("messages[0].content[0].image_url"),
        "`messages[0].content[0].image_url` must be an object with a `url`",
    );
    refused(
        &part(r#"{"type":"image_url","image_url":{}}"#),
        Some("messages[0].content[0].image_url.url"),
        "`messages[0].content[0].image_url.url` is required",
    );
    refused(
        &part(r#"{"type":"image_url","image_url":{"url":null}}"#),
        in_part,
        "media item 0: neither a URL nor a uuid is given",
    );
    refused(
        &part(r#"{"type":"image_url","image_url":{"url":"ftp://h/a"}}"#),
        in_part,
        "media item 0: the URL must be an http, https or data URL",
    );
    refused(
        &part(r#"{"type":"image_url","image_url":{"url":"data:image/png;base64"}}"#),
        in_part,
        "media item 0: the data URL has no `,`",
    );
    refused(
        &part(r#"{"type":"image_url","image_url":{"url":"data:image/png,abc"}}"#),
        in_part,
        "media item 0: only base64 data URLs are supported",
    );
}

#[test]
fn bounds_how_many_media_there_are() {
    let parts = |count: usize| vec![json!({"type": "image_url", "image_url": {"url": "http://h/a"}}); count];
    assert_eq!(parse(&user(&Value::Array(parts(1024)))).media().len(), 1024);
    let body = user(&Value::Array(parts(1025))).to_string();
    refused(&body, Some("messages"), "`messages` hold more than 1024 media items");
}

#[test]
fn reads_parameters_as_leniently_as_engines() {
    let request = parse(&json!({
        "model": "m", "stream": 1, "max_tokens": "5", "n": 2.0, "priority": -3, "user": "u", "cache_salt": "s",
        "session_id": "c", "stream_options": {"include_usage": true}, "prompt_logprobs": 0,
        "messages": [{"role": "user", "content": "x"}],
    }));
    let params = request.params();
    assert_eq!((params.model.as_deref(), params.stream, params.include_usage), (Some("m"), true, true));
    assert_eq!((params.max_tokens, params.answers, params.priority), (Some(5), 2, -3));
    assert_eq!(params.cache_salt.as_deref(), Some("s"));
    assert!(!params.comparable());
    let plain = parse(&user(&json!("x")));
    assert!(plain.params().comparable());
    assert_eq!(plain.params().answers, 1);
}

#[test]
fn finds_media_where_engines_find_them() {
    let request = parse(&user(&json!([
        {"type": "text", "text": "x", "image_url": {"url": "http://h/not-media"}},
        {"type": "image_url", "image_url": {"url": "http://h/a", "detail": "low"}},
        {"image_url": "https://h/b"},
        {"type": "image_url", "image_url": null, "uuid": "u"},
        {"type": "input_image", "image_url": "data:image/png;base64,AAAA", "uuid": 7},
        {"type": "video_url", "video_url": {"url": "HTTP://h/v"}},
        {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}},
        {"type": "image_url", "image_url": {"url": "file:///x"}, "uuid": ""},
        {"type": "image_embeds", "image_embeds": "AAAA"},
    ])));
    let found: Vec<_> = request
        .media()
        .iter()
        .map(|part| (part.kind, source(&part.source), part.client_uuid.as_deref(), part.param()))
        .collect();
    let param = |index: usize| format!("messages[0].content[{index}]");
    assert_eq!(
        found,
        [
            (MediaKind::Image, "url http://h/a", None, param(1)),
            (MediaKind::Image, "url https://h/b", None, param(2)),
            (MediaKind::Image, "absent", Some("u"), param(3)),
            (MediaKind::Image, "data image/png", Some("7"), param(4)),
            (MediaKind::Video, "url HTTP://h/v", None, param(5)),
            (MediaKind::Audio, "opaque", None, param(6)),
            (MediaKind::Image, "local file:///x", None, param(7)),
            (MediaKind::Embeds, "opaque", None, param(8)),
        ]
        .map(|(kind, source, uuid, param)| (kind, source.to_owned(), uuid, param))
    );
}

fn source(source: &MediaSource) -> String {
    match source {
        MediaSource::Data(uri) => format!("data {}", uri.media_type()),
        MediaSource::Url(url) => format!("url {url}"),
        MediaSource::Local(url) => format!("local {url}"),
        MediaSource::Absent => "absent".to_owned(),
        MediaSource::Opaque => "opaque".to_owned(),
    }
}

fn emitted(request: &ChatRequest, edits: &[MediaEdit], url: impl FnMut(usize) -> Option<Bytes>) -> String {
    String::from_utf8(request.outline(edits).fill(url).concat()).unwrap()
}

#[test]
fn rewrites_only_what_an_edit_names() {
    let edit = |uuid: Option<&str>, url: Option<&'static str>| {
        let url = url.map(|url| Bytes::from_static(url.as_bytes()));
        (
            MediaEdit {
                index: 0,
                uuid: uuid.map(str::to_owned),
                replaces_url: url.is_some(),
                unnames: false,
            },
            url,
        )
    };
    for (part, (edit, url), expected) in [
        (
            r#"{ "type" : "image_url","image_url":{"url":"data:image/png;base64,AAAA"}}"#,
            edit(Some("X"), None),
            r#"{"uuid":"X", "type" : "image_url","image_url":{"url":"data:image/png;base64,AAAA"}}"#,
        ),
        (
            r#"{"uuid" : "old","type":"image_url","image_url":{"url":"http:\/\/h\/a"}}"#,
            edit(Some("X"), Some("http://m/1?t=\"2")),
            r#"{"uuid" : "X","type":"image_url","image_url":{"url":"http://m/1?t=\"2"}}"#,
        ),
        (
            r#"{"type":"image_url","image_url": null ,"uuid":"u"}"#,
            edit(Some("X"), Some("http://m/1")),
            r#"{"type":"image_url","image_url": {"url":"http://m/1"} ,"uuid":"X"}"#,
        ),
        (
            r#"{"type":"input_image","image_url":"http://h/a","uuid":null}"#,
            edit(Some("X"), Some("http://m/1")),
            r#"{"type":"input_image","image_url":"http://m/1","uuid":"X"}"#,
        ),
        (
            r#"{"type":"image_url","image_url":{"url":"http://h/a","url":"http://h/b"},"uuid":"a","\u0075uid":"b"}"#,
            edit(Some("X\\\n"), Some("http://m/1")),
            r#"{"type":"image_url","image_url":{"url":"http://h/a","url":"http://m/1"},"uuid":"a","\u0075uid":"X\\\u000a"}"#,
        ),
    ] {
        let body = |part: &str| {
            format!("{{\"messages\" : [ {{\"role\":\"user\",\"content\":[{part}]}}\n], \"z\":1.50}}")
        };
        let request = ChatRequest::parse(&Bytes::from(body(part))).unwrap();
        let expected =
            if part.contains("h\\/a") { expected.replace("t=\"2", "t=\\\"2") } else { expected.to_owned() };
        let unnamed = [MediaEdit { uuid: None, ..edit.clone() }];
        assert_eq!(emitted(&request, &[edit], |_| url.clone()), body(&expected));
        assert_eq!(emitted(&request, &[], |_| url.clone()), body(part));
        assert_eq!(emitted(&request, &unnamed, |_| None), body(part));
    }
}

#[test]
fn rewriting_shares_the_body() {
    let url = format!("data:image/png;base64,{}", "A".repeat(1 << 20));
    let body = Bytes::from(user(&json!([{"type": "image_url", "image_url": {"url": url}}])).to_string());
    let request = ChatRequest::parse(&body).unwrap();
    let edit = MediaEdit { index: 0, uuid: Some("X".into()), replaces_url: false, unnames: false };
    let outline = request.outline(&[edit]);
    assert!(outline.is_whole());
    let chunks = outline.fill(|_| None);
    let inside = body.as_ptr_range();
    let shared: usize = chunks.iter().filter(|chunk| inside.contains(&chunk.as_ptr())).map(Bytes::len).sum();
    assert_eq!(shared, body.len());
}

/// A message's parts, and for each whether it is media with a URL to replace.
fn parts() -> impl Strategy<Value = Vec<Value>> {
    let url =
        prop_oneof![Just("http://h/ü\"\\/\n.png"), Just("data:image/png;base64,AAAA"), Just("https://x")];
    let uuid = prop::option::of(any::<String>());
    let image = (url, uuid, any::<bool>()).prop_map(|(url, uuid, detail)| {
        let mut part = json!({"type": "image_url", "image_url": {"url": url}});
        if let Some(uuid) = uuid {
            part["uuid"] = json!(uuid);
        }
        if detail {
            part["image_url"]["detail"] = json!("low");
        }
        part
    });
    let text = any::<String>().prop_map(|text| json!({"type": "text", "text": text}));
    prop::collection::vec(prop_oneof![image, text], 0..8)
}

proptest! {
    #[test]
    fn rewriting_equals_editing_the_parsed_body(
        parts in parts(),
        edits in prop::collection::vec((prop::option::of(any::<String>()), prop::option::of("[ -~]{0,20}")), 8),
        pretty in any::<bool>(),
    ) {
        let body = user(&Value::Array(parts.clone()));
        let text = if pretty { serde_json::to_string_pretty(&body) } else { serde_json::to_string(&body) };
        let request = ChatRequest::parse(&Bytes::from(text.unwrap())).unwrap();
        let mut expected = body;
        let mut applied = Vec::new();
        for (index, part) in request.media().iter().enumerate() {
            let (uuid, url) = edits[index].clone();
            let place: usize = part.param().trim_end_matches(']').rsplit('[').next().unwrap().parse().unwrap();
            let target = &mut expected["messages"][0]["content"][place];
            if let Some(uuid) = &uuid {
                target["uuid"] = json!(uuid);
            }
            if let Some(url) = &url {
                target["image_url"]["url"] = json!(url);
            }
            applied.push(MediaEdit { index, uuid, replaces_url: url.is_some(), unnames: false });
        }
        applied.reverse();
        let url = |index: usize| edits[index].1.clone().map(Bytes::from);
        let emitted: Value = serde_json::from_str(&emitted(&request, &applied, url)).unwrap();
        prop_assert_eq!(emitted, expected);
    }

    #[test]
    fn parsing_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let refused = ChatRequest::parse(&Bytes::from(bytes)).is_err();
        prop_assert_eq!(refused, true);
    }
}
