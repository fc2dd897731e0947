//! `callback`: replies out of band. This host has no callback listener yet, and says so.

use wasmtime::Result;
use wasmtime::component::Resource;

use super::Ctx;
use crate::contract::bindings::talaria::executor::callback as wit;

/// A reply that will come. There is none, since `expect` refuses.
#[expect(unreachable_pub, reason = "the generated bindings export it again")]
pub enum Pending {}

fn unsupported() -> wit::Error {
    wit::Error { kind: wit::ErrorKind::Unsupported, message: "this host has no callback listener".into() }
}

impl wit::Host for Ctx {
    async fn expect(&mut self, _message_id: String) -> Result<Result<Resource<Pending>, wit::Error>> {
        Ok(Err(unsupported()))
    }
}

impl wit::HostPending for Ctx {
    async fn reply_url(&mut self, pending: Resource<Pending>) -> Result<String> {
        match *self.table.get(&pending)? {}
    }

    async fn wait(
        &mut self,
        pending: Resource<Pending>,
        _timeout_ms: Option<u32>,
    ) -> Result<Result<wit::Delivery, wit::Error>> {
        match *self.table.get(&pending)? {}
    }

    async fn drop(&mut self, pending: Resource<Pending>) -> Result<()> {
        match self.table.delete(pending)? {}
    }
}
