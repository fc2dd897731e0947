//! A value that is read again and again from files, and counts when two reads in a row find the same.
//!
//! A file that is being written or replaced gives a different value with every read, so such a value never counts. The type
//! only compares: the caller reads, as often as it likes, and decides what a new value means.
//!
//! Why not file notifications: they watch the inode behind a path, and Kubernetes swaps a volume two symbolic links above;
//! network, overlay and bind mounts send none at all.

/// The value that counts, and the last one that does not yet.
#[derive(Debug, Clone, Default)]
pub struct Settled<T> {
    current: T,
    /// What the last read found, if that is not `current`.
    found: Option<T>,
}

impl<T: PartialEq> Settled<T> {
    /// Starts with a value that counts.
    pub fn new(current: T) -> Self {
        Self { current, found: None }
    }

    /// The value that counts.
    pub fn get(&self) -> &T {
        &self.current
    }

    /// Whether the last read found the value that counts.
    pub fn is_settled(&self) -> bool {
        self.found.is_none()
    }

    /// Records what a read found. Returns the value if it is not the current one and was found by the last read too; it is
    /// then the current one.
    pub fn see(&mut self, found: T) -> Option<&T> {
        if found == self.current {
            self.found = None;
        } else if self.found.as_ref() == Some(&found) {
            (self.current, self.found) = (found, None);
            return Some(&self.current);
        } else {
            self.found = Some(found);
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_counts_when_two_reads_in_a_row_find_it() {
        let mut files = Settled::new("a");
        for (found, is_new, current) in [
            ("half", false, "a"),
            ("b", false, "a"),
            ("b", true, "b"),
            ("b", false, "b"),
            ("gone for a moment", false, "b"),
            ("b", false, "b"),
            ("gone for a moment", false, "b"),
            ("gone for a moment", true, "gone for a moment"),
        ] {
            assert_eq!(files.see(found).is_some(), is_new, "{found}");
            assert_eq!(*files.get(), current, "{found}");
        }
    }
}
