//! URLs as they may be shown.

/// Hides what stands between scheme and host of a URL, or of several separated by commas.
#[must_use]
pub fn masked_url(url: &str) -> String {
    let mask = |part: &str| match (part.find("://"), part.rfind('@')) {
        (Some(scheme), Some(at)) if scheme + 3 <= at => {
            let (head, tail) = (part.get(..scheme + 3), part.get(at..));
            format!("{}***{}", head.unwrap_or_default(), tail.unwrap_or_default())
        }
        _ => part.to_owned(),
    };
    url.split(',').map(mask).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_in_urls_are_hidden() {
        for (url, shown) in [
            ("nats://a:b@h:4222", "nats://***@h:4222"),
            ("nats://h:4222,tls://t@h2", "nats://h:4222,tls://***@h2"),
            ("h:4222", "h:4222"),
        ] {
            assert_eq!(masked_url(url), shown);
        }
    }
}
