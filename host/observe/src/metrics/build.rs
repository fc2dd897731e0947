//! What runs.

use super::family::{Family, Kind, Label};
use super::page::Page;
use super::registry::Source;

static INFO: Family = Family {
    name: "talaria_build_info",
    kind: Kind::Info,
    labels: &[Label::named("version", "the version of this binary")],
    help: "What runs; always 1",
    question: "Is it up, and which version is it?",
};

/// The version of the product.
pub(super) struct Build(String);

impl Build {
    pub(super) fn new(version: &str) -> Self {
        Self(version.to_owned())
    }
}

impl Source for Build {
    fn title(&self) -> &'static str {
        "Build"
    }

    fn families(&self) -> Vec<&'static Family> {
        vec![&INFO]
    }

    fn write(&self, page: &mut Page) {
        page.family(&INFO).value(&[&self.0], 1);
    }
}
