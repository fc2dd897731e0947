//! Closed sets of label values.

/// A closed set of label values.
pub(crate) trait Closed: Copy + 'static {
    /// The values, in the order of their indices.
    const NAMES: &'static [&'static str];

    /// The place of this value in [`Closed::NAMES`].
    fn index(self) -> usize;
}

/// Declares an enumeration with the name of each value.
macro_rules! closed {
    ($(#[$doc:meta])* $name:ident { $($(#[$value_doc:meta])* $value:ident = $text:literal,)+ }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum $name {
            $($(#[$value_doc])* $value,)+
        }

        impl $crate::metrics::closed::Closed for $name {
            const NAMES: &'static [&'static str] = &[$($text,)+];

            fn index(self) -> usize {
                self as usize
            }
        }
    };
}

pub(crate) use closed;
