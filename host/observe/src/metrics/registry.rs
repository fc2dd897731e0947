//! The parts that have metrics, in the order of the page.

use std::sync::Arc;

use super::family::Family;
use super::page::{Format, Page};

/// A part of the host that has metrics.
pub(super) trait Source: Send + Sync + 'static {
    /// What they are about, for the documentation.
    fn title(&self) -> &'static str;

    /// All of them.
    fn families(&self) -> Vec<&'static Family>;

    /// Writes them. Must not block.
    fn write(&self, page: &mut Page);
}

/// All parts that have metrics.
#[derive(Default)]
pub(super) struct Registry(Vec<Arc<dyn Source>>);

// === impl Registry ===

impl Registry {
    /// Adds a part, and returns it for those who count.
    pub(super) fn add<S: Source>(&mut self, source: S) -> Arc<S> {
        let source = Arc::new(source);
        self.0.push(Arc::clone(&source) as _);
        source
    }

    pub(super) fn sources(&self) -> impl Iterator<Item = &dyn Source> {
        self.0.iter().map(|source| &**source)
    }

    pub(super) fn text(&self, format: Format) -> String {
        let mut page = Page::new(format);
        for source in &self.0 {
            source.write(&mut page);
        }
        page.finish()
    }
}
