//! The targets that an executor calls again and again, parsed once.
//!
//! What a method and a URL parse to depends on nothing else, so nothing here can be out of date. Whether a call to a target
//! is allowed is asked each time.
//!
//! Only the first few targets are kept: most executors call one or two. One whose URLs contain ids, which never come again,
//! still has those that it began with, and no call waits for another.

use std::fmt;
use std::sync::{Arc, OnceLock};

use crate::error::Error;
use crate::target::Target;

/// The longest method of a target that is kept. Those in use are shorter.
const METHOD_BYTES: usize = 16;

/// The first targets of an executor. Clones share none.
#[derive(Default)]
pub struct Targets([OnceLock<Known>; 4]);

struct Known {
    method: String,
    url: String,
    target: Arc<Target>,
}

// === impl Targets ===

impl Targets {
    /// Parses a target, or returns the one that was parsed before.
    pub(crate) fn parse(&self, method: &str, url: &str) -> Result<Arc<Target>, Error> {
        let mut known = self.0.iter().map_while(OnceLock::get);
        if let Some(known) = known.find(|known| known.url == url && known.method == method) {
            return Ok(Arc::clone(&known.target));
        }
        let target = Arc::new(Target::parse(method, url)?);
        if method.len() > METHOD_BYTES {
            return Ok(target);
        }
        if let Some(free) = self.0.iter().find(|place| place.get().is_none()) {
            // Another call may have taken the place meanwhile.
            let _ = free.set(Known {
                method: method.to_owned(),
                url: url.to_owned(),
                target: Arc::clone(&target),
            });
        }
        Ok(target)
    }
}

/// Shows none of them: a query may contain secrets.
impl fmt::Debug for Targets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Targets")
    }
}

impl Clone for Targets {
    fn clone(&self) -> Self {
        Self::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_targets_are_parsed_once_and_the_others_each_time() {
        let targets = Targets::default();
        let parse = |nth: usize| targets.parse("GET", &format!("http://example.com/{nth}")).unwrap();
        for nth in 0..6 {
            let (first, again) = (parse(nth), parse(nth));
            assert_eq!(first.path, format!("/{nth}"));
            assert_eq!(Arc::ptr_eq(&first, &again), nth < 4);
        }
        assert_eq!(targets.parse("POST", "http://example.com/0").unwrap().method, "POST");
        assert!(targets.parse("GET", "http://example.com/0#x").is_err());
    }
}
