//! The card of a running server, which can be replaced while it runs.
//!
//! A [`CardSnapshot`] holds the card in all its forms and the capabilities that requests are held to. It is built once per
//! change, signatures included, and never modified: a change replaces it as a whole. A request uses the snapshot that was
//! current when its head was read, so the card that it could have fetched is the card that it is judged by; a stream that is
//! open stays open. A new card with the same content keeps the snapshot, and with it the ETag, the date and the signatures.
//!
//! Whether callers need a token is settled when the server is created, so a new card cannot change it. An extended card is
//! for callers with a token: if nobody has one, the card offers none, whatever the configuration says.
//!
//! If no address is configured, the card names the address that the request was sent to. Such a card is built for each
//! request and kept nowhere, so it cannot be signed.

use std::sync::Arc;

use arc_swap::ArcSwap;
use http::{HeaderMap, Method, Response};
use serde_json::Value;

use crate::capabilities::Capabilities;
use crate::card::{Addresses, Card, CardConfig, GrpcAddress};
use crate::origin::{self, Network};
use crate::respond::Body;
use crate::sign::CardSigner;
use crate::version::{self, Version};

/// A handle to the card of a running server. All clones share one card.
#[derive(Debug, Clone)]
pub struct LiveCard(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    snapshot: ArcSwap<CardSnapshot>,
    context: CardContext,
}

/// What every card of a server has in common.
#[derive(Debug)]
pub(crate) struct CardContext {
    /// The configured address of the server.
    pub(crate) url: String,
    /// What it says about gRPC.
    pub(crate) grpc: GrpcAddress,
    /// Whether the card names the address that a request was sent to instead.
    pub(crate) follows: bool,
    /// The proxies that are trusted to report that address.
    pub(crate) proxies: Vec<Network>,
    /// Whether callers need a token.
    pub(crate) secured: bool,
    pub(crate) signer: Option<CardSigner>,
}

/// A card, ready to be served and to hold requests to.
#[derive(Debug)]
pub(crate) struct CardSnapshot {
    /// The card as configured.
    configured: CardConfig,
    /// The card as served, which offers an extended card only if callers need a token.
    served: CardConfig,
    card: Card,
    /// The extended card in 1.0 and in 0.3.
    extended_card: (Arc<Value>, Arc<Value>),
    pub(crate) capabilities: Capabilities,
    url: String,
    grpc: GrpcAddress,
    secured: bool,
}

// === impl LiveCard ===

impl LiveCard {
    pub(crate) fn new(card: CardConfig, context: CardContext) -> Self {
        let snapshot = ArcSwap::from_pointee(CardSnapshot::new(card, &context));
        Self(Arc::new(Inner { snapshot, context }))
    }

    /// Serves this card from the next request on. Returns whether it differs from the current one.
    #[must_use = "says whether the card changed"]
    pub fn renew(&self, card: CardConfig) -> bool {
        let is_new = self.0.snapshot.load().configured != card;
        if is_new {
            self.0.snapshot.store(Arc::new(CardSnapshot::new(card, &self.0.context)));
        }
        is_new
    }

    /// Answers a GET or HEAD by a caller who requests the version `requested` and sent its request to `url`.
    pub(crate) fn respond(
        &self,
        method: &Method,
        headers: &HeaderMap,
        requested: Option<&str>,
        url: Option<String>,
    ) -> Response<Body> {
        let vary = if self.0.context.proxies.is_empty() { version::NAME } else { origin::VARY };
        let snapshot = self.0.snapshot.load();
        match url.filter(|url| *url != snapshot.url) {
            Some(url) => {
                let addresses = Addresses::new(url, &snapshot.grpc);
                let card = snapshot.card.at(&snapshot.served, &addresses, snapshot.secured);
                card.respond(method, headers, requested, vary)
            }
            None => snapshot.card.respond(method, headers, requested, vary),
        }
    }

    /// The proxies that are trusted to report where a request was sent; `None` if the card does not follow requests.
    pub(crate) fn trusted_proxies(&self) -> Option<&[Network]> {
        self.0.context.follows.then_some(&*self.0.context.proxies)
    }

    /// Returns the current card; a request uses one snapshot from start to end.
    pub(crate) fn snapshot(&self) -> Arc<CardSnapshot> {
        self.0.snapshot.load_full()
    }
}

// === impl CardSnapshot ===

impl CardSnapshot {
    fn new(configured: CardConfig, context: &CardContext) -> Self {
        let CardContext { url, grpc, secured, signer, .. } = context;
        let addresses = Addresses::new(url, grpc);
        let mut served = configured.clone();
        served.extended_card &= *secured;
        let (one, union) = served.documents(&addresses, *secured, true, signer.as_ref());
        Self {
            card: Card::new(&served, &addresses, *secured, signer.as_ref()),
            extended_card: (Arc::new(one), Arc::new(union)),
            capabilities: Capabilities::new(&served),
            served,
            configured,
            url: url.clone(),
            grpc: grpc.clone(),
            secured: *secured,
        }
    }

    /// Returns the extended card for a caller who sent its request to `url`.
    pub(crate) fn extended_card(&self, version: Version, url: Option<String>) -> Arc<Value> {
        if let Some(url) = url.filter(|url| *url != self.url) {
            let addresses = Addresses::new(url, &self.grpc);
            let (one, union) = self.served.documents(&addresses, self.secured, true, None);
            return Arc::new(if version == Version::V1 { one } else { union });
        }
        let (one, union) = &self.extended_card;
        Arc::clone(if version == Version::V1 { one } else { union })
    }
}
