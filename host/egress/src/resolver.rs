//! Name lookup, with the addresses dropped that may not be connected to.
//!
//! The system's resolver blocks a thread, for half a minute if a name server does not answer, and cannot be cancelled. A
//! caller who chooses names could occupy all threads for blocking work, the store's among them. So the concurrent lookups of
//! one client are bounded, and a lookup holds its permit until the thread is free again, even if nobody waits for it any more.
//!
//! Addresses that [`Addresses`] rejects are dropped here, before a connection is made; a name that has no others fails.

use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::{fmt, vec};

use hyper_util::client::legacy::connect::dns::Name;
use tokio::sync::Semaphore;
use tower_service::Service;

use crate::address::Addresses;
use crate::connect::Failure;

/// Concurrent lookups of one client. 32 of the 512 threads that the runtime has for blocking work.
const LOOKUPS: usize = 32;

/// How names are resolved to addresses.
#[derive(Clone, Default)]
pub enum Names {
    /// As the system resolves them.
    #[default]
    System,
    /// By this function, which must not block; an empty result means that the name does not exist.
    Given(Arc<Resolve>),
}

type Resolve = dyn Fn(&str) -> Vec<IpAddr> + Send + Sync;

/// The resolver of one connection pool.
#[derive(Debug, Clone)]
pub(crate) struct Resolver {
    names: Names,
    addresses: Addresses,
    lookups: Arc<Semaphore>,
}

// === impl Names ===

impl fmt::Debug for Names {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::System => "System",
            Self::Given(_) => "Given",
        })
    }
}

// === impl Resolver ===

impl Resolver {
    pub(crate) fn new(names: Names, addresses: Addresses) -> Self {
        Self { names, addresses, lookups: Arc::new(Semaphore::new(LOOKUPS)) }
    }

    pub(crate) fn addresses(&self) -> Addresses {
        self.addresses
    }

    /// All addresses of a name, at least one, whatever they are.
    pub(crate) async fn lookup(&self, name: String) -> Result<Vec<IpAddr>, Failure> {
        let found = match &self.names {
            Names::Given(resolve) => resolve(&name),
            Names::System => match self.ask_system(name.clone()).await {
                Ok(found) => found,
                Err(error) => {
                    tracing::debug!(%error, name, "name not resolved");
                    Vec::new()
                }
            },
        };
        if found.is_empty() { Err(Failure::Name { name }) } else { Ok(found) }
    }

    async fn ask_system(&self, name: String) -> io::Result<Vec<IpAddr>> {
        let permit = Arc::clone(&self.lookups).acquire_owned().await.map_err(io::Error::other)?;
        let lookup = tokio::task::spawn_blocking(move || {
            let _held = permit;
            // The connector sets the port.
            Ok((name.as_str(), 0).to_socket_addrs()?.map(|address| address.ip()).collect())
        });
        lookup.await.map_err(io::Error::other)?
    }

    /// Returns the addresses of a name that may be connected to, at least one.
    pub(crate) async fn resolve(&self, name: String) -> Result<Vec<SocketAddr>, Failure> {
        let mut found = self.lookup(name.clone()).await?;
        let mut rejected = None;
        found.retain(|address| match self.addresses.check(*address) {
            Ok(()) => true,
            Err(special) => {
                tracing::warn!(name, %address, "not connecting to {special}");
                rejected = Some(special);
                false
            }
        });
        match rejected {
            Some(special) if found.is_empty() => Err(Failure::Address { special, destination: name }),
            _ => Ok(found.into_iter().map(|address| SocketAddr::new(address, 0)).collect()),
        }
    }
}

impl Service<Name> for Resolver {
    type Response = vec::IntoIter<SocketAddr>;
    type Error = Failure;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Failure>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Failure>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let resolver = self.clone();
        Box::pin(async move { Ok(resolver.resolve(name.as_str().to_owned()).await?.into_iter()) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolver(addresses: Addresses, answer: &'static [&'static str]) -> Resolver {
        let answer: Vec<IpAddr> = answer.iter().map(|address| address.parse().expect("an address")).collect();
        Resolver::new(Names::Given(Arc::new(move |_name| answer.clone())), addresses)
    }

    #[tokio::test]
    async fn of_a_mixed_answer_only_allowed_addresses_are_used() {
        let answer = &["10.0.0.1", "93.184.216.34", "169.254.169.254", "2a00::1", "::ffff:127.0.0.1"];
        for (addresses, kept) in [
            (Addresses::Public, &["93.184.216.34:0", "[2a00::1]:0"][..]),
            (Addresses::Private, &["10.0.0.1:0", "93.184.216.34:0", "[2a00::1]:0", "[::ffff:127.0.0.1]:0"]),
        ] {
            let found = resolver(addresses, answer).resolve("mixed.example".to_owned()).await;
            let found: Vec<_> = found.expect("some are allowed").iter().map(ToString::to_string).collect();
            assert_eq!(found, kept);
        }
    }

    #[tokio::test]
    async fn lookups_are_bounded() {
        let resolver = Resolver::new(Names::System, Addresses::Any);
        let all =
            Arc::clone(&resolver.lookups).acquire_many_owned(LOOKUPS as u32).await.expect("all permits");
        let waiting = resolver.ask_system("localhost".to_owned());
        assert!(futures_util::FutureExt::now_or_never(waiting).is_none(), "no permit was left");
        drop(all);
        resolver.ask_system("localhost".to_owned()).await.expect("an address");
    }
}
