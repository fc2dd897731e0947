//! The contract is documented, and every language can implement it.

use std::path::Path;

/// Every item of the WIT files has a comment above it.
#[test]
fn every_item_of_the_contract_has_a_comment() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../wit/0.1.0");
    let mut items = 0;
    for file in std::fs::read_dir(folder).unwrap() {
        let path = file.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        let mut explained = false;
        for (number, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.starts_with("///") {
                explained = true;
                continue;
            }
            let plain = line.is_empty()
                || line == "}"
                || ["package ", "use ", "import ", "export ", "include "]
                    .iter()
                    .any(|start| line.starts_with(start));
            if !plain {
                items += 1;
                assert!(explained, "{}:{}: nothing explains `{line}`", path.display(), number + 1);
            }
            explained = false;
        }
    }
    assert!(items > 150, "the contract has {items} items; is the folder right?");
}

/// JavaScript engines disagree about them, so a component could work in one engine and not in another.
#[test]
fn there_are_no_64_bit_integers() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../wit/0.1.0");
    for file in std::fs::read_dir(folder).unwrap() {
        let text = std::fs::read_to_string(file.unwrap().path()).unwrap();
        assert!(!text.contains("u64") && !text.contains("s64"));
    }
}
