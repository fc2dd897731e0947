//! Which components load, which are refused and why, and what the cache saves.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Mutex;

use talaria_egress::{Config, Egress};
use talaria_engine::{Component, Engine, EngineConfig, LoadError, Stage};
use talaria_fakes::guest;
use talaria_rig::Rig;

async fn refused(wasm: Vec<u8>) -> LoadError {
    Component::load(Rig::engine().await, wasm, |_| ()).await.expect_err("it should be refused")
}

/// The component with one text in it replaced by another of the same length.
fn patched(name: &str, from: &str, to: &str) -> Vec<u8> {
    assert_eq!(from.len(), to.len());
    let mut wasm = guest(name);
    let mut found = 0;
    for at in 0..wasm.len() - from.len() {
        if wasm[at..].starts_with(from.as_bytes()) {
            wasm[at..at + to.len()].copy_from_slice(to.as_bytes());
            found += 1;
        }
    }
    assert!(found > 0, "{from} is not in {name}");
    wasm
}

#[tokio::test]
async fn a_component_describes_itself() {
    let component = Component::load(Rig::engine().await, guest("race"), |_| ()).await.unwrap();
    let description = component.description();
    assert_eq!(description.name, "race");
    assert!(
        description.streaming && !description.capabilities.session && !description.capabilities.heartbeat
    );
    assert_eq!(description.needs.secrets, ["FIRST_KEY", "SECOND_KEY"]);
    assert_eq!(component.digest().len(), 64);
}

#[tokio::test]
async fn what_is_not_a_component_is_refused() {
    let whole = guest("race");
    let core_module = b"\0asm\x01\0\0\0".to_vec();
    for (wasm, says) in [
        (Vec::new(), "the file is empty"),
        (b"#!/bin/sh\necho hello".to_vec(), "not a component"),
        (core_module, "core module"),
        (whole[..whole.len() / 2].to_vec(), "unexpected end"),
        (whole[..12].to_vec(), "not a component"),
    ] {
        let error = refused(wasm).await;
        assert!(matches!(error, LoadError::NotAComponent(_)), "{error}");
        assert!(error.to_string().contains(says), "{error} should say {says}");
    }
}

#[tokio::test]
async fn a_component_of_another_world_is_refused() {
    let empty = b"\0asm\x0d\0\x01\0".to_vec();
    let error = refused(empty).await;
    assert!(matches!(error, LoadError::OtherWorld { .. }), "{error}");
}

#[tokio::test]
async fn another_version_is_refused_with_both_named() {
    let wasm = patched("probe", "talaria:executor/strategy@0.1.0", "talaria:executor/strategy@0.2.0");
    let error = refused(wasm).await.to_string();
    assert!(error.contains("0.2.0") && error.contains("0.1.0") && error.contains("rebuild"), "{error}");
}

#[tokio::test]
async fn an_unknown_import_is_refused_by_name() {
    let wasm = patched("probe", "talaria:executor/events@0.1.0", "talaria:executor/evenks@0.1.0");
    let error = refused(wasm).await.to_string();
    assert!(error.contains("`talaria:executor/evenks@0.1.0`") && error.contains("0.1.0"), "{error}");
}

#[tokio::test]
async fn types_that_differ_are_refused() {
    let error = refused(patched("probe", "budget-ms", "budgex-ms")).await;
    assert!(matches!(error, LoadError::Mismatch(_)), "{error}");
}

#[tokio::test]
async fn a_component_that_traps_in_describe_is_refused() {
    let error = refused(guest("trap-describe")).await;
    assert!(matches!(error, LoadError::Describe(_)), "{error}");
    Component::load(Rig::engine().await, guest("probe"), |_| ()).await.expect("the next one loads");
}

#[tokio::test]
async fn settings_must_fit_the_components_schema() {
    let component = Component::load(Rig::engine().await, guest("race"), |_| ()).await.unwrap();
    let settings = |json: serde_json::Value| component.settings(json.as_object().unwrap());
    let accepted = settings(serde_json::json!({ "model": "m" })).unwrap();
    assert_eq!(accepted["second_url"], "http://127.0.0.1:8643/v1", "defaults are filled in");
    let rejected = settings(serde_json::json!({ "model": 7, "modell": "m" })).unwrap_err().to_string();
    assert!(rejected.contains(r#"settings.model: value is not of type "string""#), "{rejected}");
    assert!(rejected.contains("modell"), "{rejected}");
}

fn engine(cache: &Path) -> Engine {
    let config = EngineConfig {
        slots: 4,
        scripted_slots: 1,
        cache_dir: Some(cache.to_owned()),
        ..EngineConfig::default()
    };
    Engine::new(&config, Egress::new(Config::default())).unwrap()
}

/// Whether loading had to compile.
async fn compiles(engine: &Engine) -> bool {
    let stages = Mutex::new(Vec::new());
    let wasm = guest("probe");
    Component::load(engine, wasm, |stage| stages.lock().unwrap().push(stage)).await.unwrap();
    match stages.into_inner().unwrap().as_slice() {
        [] => false,
        [Stage::Compiling { .. }, Stage::Compiled { .. }] => true,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_component_is_compiled_once_with_a_cache() {
    let cache = tempfile::tempdir().unwrap();
    assert!(compiles(&engine(cache.path())).await, "the first time");
    assert!(!compiles(&engine(cache.path())).await, "not the second");
}

#[tokio::test]
async fn a_broken_file_in_the_cache_is_compiled_again() {
    let cache = tempfile::tempdir().unwrap();
    compiles(&engine(cache.path())).await;
    let file = std::fs::read_dir(cache.path()).unwrap().next().unwrap().unwrap().path();
    std::fs::write(&file, b"not machine code").unwrap();
    assert!(compiles(&engine(cache.path())).await);
    assert!(!compiles(&engine(cache.path())).await, "and it is whole again");
}

#[tokio::test]
async fn a_cache_that_others_can_write_to_is_not_used() {
    let cache = tempfile::tempdir().unwrap();
    compiles(&engine(cache.path())).await;
    std::fs::set_permissions(cache.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
    assert!(compiles(&engine(cache.path())).await, "what is in it could be anybody's");
}
