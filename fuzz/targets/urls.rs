//! The URL normaliser: idempotent, and never another host.

#![no_main]

#[expect(unreachable_pub, dead_code, reason = "a module of another crate")]
#[path = "../../crates/actors/src/normal_url.rs"]
mod normal_url;

use libfuzzer_sys::fuzz_target;
use url::Url;

fuzz_target!(|text: &str| {
    // Others are refused before anything is kept under their name.
    if !Url::parse(text).is_ok_and(|url| matches!(url.scheme(), "http" | "https")) {
        return;
    }
    let Ok(normal) = normal_url::normalise(text) else {
        assert!(text.len() > 16 << 10, "{text} is a URL");
        return;
    };
    assert!(normal.key.len() <= 256 && normal.credentials.len() <= 256);
    let before = Url::parse(text).unwrap();
    let Ok(after) = Url::parse(&normal.key) else {
        // A long URL is kept by its digest.
        assert_eq!(normal.key.len(), 64);
        return;
    };
    assert_eq!(before.host(), after.host());
    assert_eq!(before.scheme(), after.scheme());
    assert_eq!(before.port(), after.port());
    assert_eq!(before.path(), after.path());
    assert_eq!(after.fragment(), None);
    let again = normal_url::normalise(&normal.key).unwrap();
    assert_eq!(again.key, normal.key, "normalising is idempotent");
    assert_eq!(&*again.credentials, "");
});
