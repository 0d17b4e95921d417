//! Tokens that open one media item of this frontend for a while.
//!
//! ```text
//! token = expiry (Unix seconds, lowercase hex) "." mac (32 hex digits)
//! mac   = first 16 bytes of blake3 keyed by this frontend's key ( what is opened ‖ 00 ‖ expiry u64 LE )
//! ```
//! The key is drawn at start and never leaves the process: what a frontend handed out dies with it.

use std::fmt;

use subtle::ConstantTimeEq;

/// Makes and checks tokens.
pub(crate) struct TokenKey([u8; 32]);

/// Why a token opens nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// It was not made here for this.
    Forged,
    /// It was, but its time is over.
    Expired,
}

/// How long a token opens its item at least, and at most twice as long, in seconds. An engine fetches media when it
/// receives a request, so this only has to outlast its own queue.
const OPENS_FOR_S: u64 = 600;
const MAC_BYTES: usize = 16;

impl TokenKey {
    /// Draws a key.
    ///
    /// # Errors
    /// The system gives no random bytes.
    pub(crate) fn draw() -> Result<Self, getrandom::Error> {
        let mut key = [0; 32];
        getrandom::fill(&mut key)?;
        Ok(Self(key))
    }

    /// Makes a token. Those of one thing are equal for a while, so that what caches by URL sees one.
    pub(crate) fn token(&self, opens: &str, now_s: u64) -> String {
        let expiry = (now_s / OPENS_FOR_S + 2) * OPENS_FOR_S;
        let mut token = format!("{expiry:x}.");
        for byte in self.mac(opens, expiry) {
            token.push_str(&format!("{byte:02x}"));
        }
        token
    }

    /// Checks a token.
    pub(crate) fn check(&self, opens: &str, token: &str, now_s: u64) -> Result<(), Refused> {
        let (expiry, mac) = token.split_once('.').ok_or(Refused::Forged)?;
        let presented = bytes(mac).ok_or(Refused::Forged)?;
        let expiry = u64::from_str_radix(expiry, 16).map_err(|_| Refused::Forged)?;
        if !bool::from(self.mac(opens, expiry).ct_eq(&presented)) {
            return Err(Refused::Forged);
        }
        if expiry <= now_s { Err(Refused::Expired) } else { Ok(()) }
    }

    fn mac(&self, opens: &str, expiry: u64) -> [u8; MAC_BYTES] {
        let mut hasher = blake3::Hasher::new_keyed(&self.0);
        hasher.update(opens.as_bytes()).update(&[0]).update(&expiry.to_le_bytes());
        let mut mac = [0; MAC_BYTES];
        hasher.finalize_xof().fill(&mut mac);
        mac
    }
}

impl fmt::Debug for TokenKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TokenKey")
    }
}

/// Reads 32 hex digits.
fn bytes(hex: &str) -> Option<[u8; MAC_BYTES]> {
    let number = u128::from_str_radix(hex, 16).ok()?;
    (hex.len() == MAC_BYTES * 2 && hex.bytes().all(|byte| byte.is_ascii_hexdigit()))
        .then(|| number.to_be_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_opens_one_thing_for_a_while() {
        let (key, other) = (TokenKey::draw().unwrap(), TokenKey::draw().unwrap());
        let now = 1_800_000_123;
        let token = key.token("a", now);
        assert_eq!(key.check("a", &token, now), Ok(()));
        assert_eq!(key.check("a", &token, now + OPENS_FOR_S), Ok(()));
        assert_eq!(key.check("a", &token, now + 2 * OPENS_FOR_S), Err(Refused::Expired));
        assert_eq!(key.check("b", &token, now), Err(Refused::Forged));
        assert_eq!(other.check("a", &token, now), Err(Refused::Forged));
        assert_eq!(key.token("a", now), key.token("a", now + 60));
    }

    #[test]
    fn what_was_not_made_here_is_refused() {
        let key = TokenKey::draw().unwrap();
        let token = key.token("a", 0);
        let (expiry, mac) = token.split_once('.').unwrap();
        let later = format!("{:x}.{mac}", u64::from_str_radix(expiry, 16).unwrap() + 1);
        let plus = format!("{expiry}.+{}", &mac[1..]);
        let cases =
            ["", ".", "x", expiry, mac, &later, &plus, &token[..token.len() - 1], &format!("{token}0")];
        for wrong in cases {
            assert_eq!(key.check("a", wrong, 0), Err(Refused::Forged), "{wrong}");
        }
    }
}
