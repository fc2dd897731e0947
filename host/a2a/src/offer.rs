//! What the server offers at one moment: the card in all its forms, and what requests are held to by it.
//!
//! An [`Offer`] is made once for each change, signatures included, and is never changed itself: it is replaced as a whole.
//! A request takes the one of the moment in which its head was read and is answered by it to its end, so nobody is
//! refused by another card than the one that applied when they asked; a stream that was open stays open. A card that says
//! the same as the one before makes no new offer: its ETag, its date and its signatures stay.
//!
//! Who may call is not the card's to change, so whether it names the security scheme is settled when the server is made. An
//! extended card is for callers that proved who they are: where nobody can, none is offered, whatever the card wants.
//!
//! Where no address is configured, the card says the one that the request was sent to. Such a card is made when it is asked
//! for and kept nowhere, so it cannot be signed.

use std::sync::Arc;

use arc_swap::ArcSwap;
use http::{HeaderMap, Method, Response};
use serde_json::Value;

use crate::capabilities::Capabilities;
use crate::card::{Card, CardConfig};
use crate::origin::{self, Network};
use crate::respond::Body;
use crate::sign::CardSigner;
use crate::version::{self, Version};

/// The card of a server that runs. A clone is the same: what one renews, all serve.
#[derive(Debug, Clone)]
pub struct LiveCard(Arc<Live>);

#[derive(Debug)]
struct Live {
    offer: ArcSwap<Offer>,
    stage: Stage,
}

/// What is the same for every card of a server.
#[derive(Debug)]
pub(crate) struct Stage {
    /// Where the server is reached.
    pub(crate) url: String,
    /// Whether requests know better.
    pub(crate) follows: bool,
    /// Who may say on behalf of others where they sent their requests.
    pub(crate) proxies: Vec<Network>,
    /// Whether it asks for a token.
    pub(crate) secured: bool,
    pub(crate) signer: Option<CardSigner>,
}

/// A card, ready to be served and held to.
#[derive(Debug)]
pub(crate) struct Offer {
    /// What was to be said, and what is said of it.
    wanted: CardConfig,
    offered: CardConfig,
    card: Card,
    /// In 1.0 and in 0.3.
    extended_card: (Arc<Value>, Arc<Value>),
    pub(crate) capabilities: Capabilities,
    url: String,
    secured: bool,
}

// === impl LiveCard ===

impl LiveCard {
    pub(crate) fn new(card: CardConfig, stage: Stage) -> Self {
        Self(Arc::new(Live { offer: ArcSwap::from_pointee(Offer::new(card, &stage)), stage }))
    }

    /// Serves this card from the next request on. Says whether it is another than before.
    #[must_use = "whether anything changed is what there is to tell"]
    pub fn renew(&self, card: CardConfig) -> bool {
        let is_new = self.0.offer.load().wanted != card;
        if is_new {
            self.0.offer.store(Arc::new(Offer::new(card, &self.0.stage)));
        }
        is_new
    }

    /// Answers GET and HEAD of a caller who states the version `asked`, and sent its request to `url`.
    pub(crate) fn respond(
        &self,
        method: &Method,
        headers: &HeaderMap,
        asked: Option<&str>,
        url: Option<String>,
    ) -> Response<Body> {
        let vary = if self.0.stage.proxies.is_empty() { version::NAME } else { origin::VARY };
        let offer = self.0.offer.load();
        match url.filter(|url| *url != offer.url) {
            Some(url) => {
                offer.card.at(&offer.offered, &url, offer.secured).respond(method, headers, asked, vary)
            }
            None => offer.card.respond(method, headers, asked, vary),
        }
    }

    /// Whose word counts for where a request was sent; none where nobody's does.
    pub(crate) fn followed(&self) -> Option<&[Network]> {
        self.0.stage.follows.then_some(&*self.0.stage.proxies)
    }

    /// For as long as a request takes.
    pub(crate) fn offer(&self) -> Arc<Offer> {
        self.0.offer.load_full()
    }
}

// === impl Offer ===

impl Offer {
    fn new(wanted: CardConfig, stage: &Stage) -> Self {
        let Stage { url, secured, signer, .. } = stage;
        let mut offered = wanted.clone();
        offered.extended_card &= *secured;
        let (one, union) = offered.documents(url, *secured, true, signer.as_ref());
        Self {
            card: Card::new(&offered, url, *secured, signer.as_ref()),
            extended_card: (Arc::new(one), Arc::new(union)),
            capabilities: Capabilities::new(&offered),
            offered,
            wanted,
            url: url.clone(),
            secured: *secured,
        }
    }

    /// The extended card for a caller who sent its request to `url`.
    pub(crate) fn extended_card(&self, version: Version, url: Option<String>) -> Arc<Value> {
        if let Some(url) = url.filter(|url| *url != self.url) {
            let (one, union) = self.offered.documents(&url, self.secured, true, None);
            return Arc::new(if version == Version::V1 { one } else { union });
        }
        let (one, union) = &self.extended_card;
        Arc::clone(if version == Version::V1 { one } else { union })
    }
}
