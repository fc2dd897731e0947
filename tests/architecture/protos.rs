//! The types of the gRPC messages are what the .proto files say, and every method of the services is served.
//!
//! `TALARIA_BLESS=1 cargo test -p talaria-architecture protos` writes the types anew. The compiler is protox, so that nobody
//! needs protoc; it is here and not in the crate's own tests, which could not be compiled without the types.

use std::env;
use std::fs;

use crate::sources::root;

const FOLDER: &str = "host/a2a/src/grpc";

#[test]
fn the_generated_messages_fit_their_protos() {
    let protos = root().join("host/a2a/proto");
    let descriptors =
        protox::compile(["a2a_v1.proto", "a2a_v03.proto"], [protos]).expect("the protos compile");
    let methods = fs::read_to_string(root().join(FOLDER).join("mod.rs")).expect("the methods");
    for file in &descriptors.file {
        for service in &file.service {
            for method in &service.method {
                let path = format!("\"/{}.{}/{}\"", file.package(), service.name(), method.name());
                assert!(methods.contains(&path), "{path} is not served");
            }
        }
    }

    let fresh = tempfile::tempdir().expect("a folder");
    // The maps of a card are encoded in one order.
    let generated =
        prost_build::Config::new().btree_map(["."]).out_dir(fresh.path()).compile_fds(descriptors);
    generated.expect("the types are generated");
    for name in ["lf.a2a.v1.rs", "a2a.v1.rs"] {
        let text = fs::read_to_string(fresh.path().join(name)).expect("the generated types");
        let committed = root().join(FOLDER).join("generated").join(name);
        if env::var_os("TALARIA_BLESS").is_some() {
            fs::write(&committed, &text).expect("the types are written");
        }
        let found = fs::read_to_string(&committed).unwrap_or_default();
        assert!(found == text, "{name} does not fit its .proto; see the head of this file");
    }
}
