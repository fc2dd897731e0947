//! Components that attack the loader.

use super::*;

/// A valid component with one more module, which is instantiated before anything else can be called.
fn with_module(wat: &str) -> Vec<u8> {
    let mut wasm = guest("hostile");
    let (mut depth, mut modules) = (0, 0);
    for payload in Parser::new(0).parse_all(&wasm) {
        match payload.unwrap() {
            Payload::ModuleSection { .. } => {
                modules += usize::from(depth == 0);
                depth += 1;
            }
            Payload::ComponentSection { .. } => depth += 1,
            Payload::End(_) => depth -= 1,
            _ => {}
        }
    }
    let module = wat::parse_str(wat).unwrap();
    section(&mut wasm, 1, &module);
    // One instance of that module, without arguments.
    let mut instance = vec![1, 0];
    leb(&mut instance, modules);
    instance.push(0);
    section(&mut wasm, 2, &instance);
    wasm
}

fn section(wasm: &mut Vec<u8>, id: u8, content: &[u8]) {
    wasm.push(id);
    leb(wasm, content.len());
    wasm.extend(content);
}

fn leb(bytes: &mut Vec<u8>, mut number: usize) {
    while number >= 0x80 {
        bytes.push(u8::try_from(number & 0x7f).unwrap() | 0x80);
        number >>= 7;
    }
    bytes.push(u8::try_from(number).unwrap());
}

async fn load(wasm: Vec<u8>) -> Result<Component, LoadError> {
    Component::load(Rig::engine().await, wasm, |_| ()).await
}

async fn refused(wasm: Vec<u8>) -> LoadError {
    let error = load(wasm).await.expect_err("it should be refused");
    load(guest("probe")).await.expect("the next one loads");
    error
}

#[tokio::test]
async fn a_component_with_a_further_harmless_module_loads() {
    load(with_module("(module (func $idle) (start $idle))"))
        .await
        .expect("the tests below test what they say");
}

/// Such a component runs in the pool for guests with an interpreter, whose engine polls only what was woken.
#[tokio::test]
async fn a_component_with_asynchronous_calls_runs() {
    const CANONICAL: u8 = 8;
    const BACKPRESSURE_INC: u8 = 0x24;
    let mut wasm = guest("probe");
    section(&mut wasm, CANONICAL, &[1, BACKPRESSURE_INC]);
    let gateway = FakeGateway::always(Reply::status(200, "text/plain", "fetched")).await;
    let url = format!("{}/x", gateway.base_url());
    let rig = Rig::of(wasm).await.grant([format!("GET {url}").as_str()]);
    let ran = soon("the call ends", rig.run(&format!("fetch {url}"))).await;
    assert_eq!(ran.text(), "200 fetched");
}

#[tokio::test]
async fn a_start_function_that_spins_is_stopped() {
    let error = refused(with_module("(module (func $spin (loop br 0)) (start $spin))")).await;
    assert!(error.to_string().contains("longer than 5s"), "{error}");
}

#[tokio::test]
async fn a_description_that_spins_is_stopped() {
    let error = refused(guest("spin-describe")).await;
    assert!(error.to_string().contains("longer than 5s"), "{error}");
}

#[tokio::test]
async fn giant_tables_and_memories_are_refused() {
    for wat in ["(module (table 10000000 funcref))", "(module (memory 60000))"] {
        let error = refused(with_module(wat)).await;
        assert!(matches!(error, LoadError::Compile(_) | LoadError::Describe(_)), "{wat}: {error}");
    }
}

/// The size of the code is checked before it is compiled.
#[tokio::test]
async fn a_component_that_would_compile_for_minutes_is_refused_before_compiling() {
    let giant = format!("(module (func {}))", "i32.const 1 drop ".repeat(400_000));
    let many = format!("(module {})", "(func)".repeat(200_001));
    for wat in [giant, many] {
        let error = refused(with_module(&wat)).await;
        assert!(matches!(error, LoadError::TooComplex { .. }), "{error}");
    }
}

/// A component of a few bytes that unpacks into millions of instances.
#[tokio::test]
async fn a_component_with_millions_of_instances_is_refused() {
    let mut wasm = with_module("(module)");
    let instances: usize = 100_000;
    let mut content = Vec::new();
    leb(&mut content, instances);
    for _ in 0..instances {
        content.extend([0, 0, 0]);
    }
    section(&mut wasm, 2, &content);
    let error = refused(wasm).await;
    assert!(matches!(error, LoadError::Compile(_) | LoadError::NotAComponent(_)), "{error}");
}
