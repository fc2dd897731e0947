//! What the server offers at one moment: the card in all its forms, and what requests are held to by it.
//!
//! An [`Offer`] is made once for each change, signatures included, and is never changed itself: it is replaced as a whole.
//! A request takes the one of the moment in which its head was read and is answered by it to its end, so nobody is
//! refused by another card than the one that applied when they asked; a stream that was open stays open. A card that says
//! the same as the one before makes no new offer: its ETag, its date and its signatures stay.
//!
//! Who may call is not the card's to change, so whether it names the security scheme is settled when the server is made.

use std::sync::Arc;

use arc_swap::{ArcSwap, Guard};
use serde_json::Value;

use crate::capabilities::Capabilities;
use crate::card::{Card, CardConfig};
use crate::sign::CardSigner;

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
    /// Whether it asks for a token.
    pub(crate) secured: bool,
    pub(crate) signer: Option<CardSigner>,
}

/// A card, ready to be served and held to.
#[derive(Debug)]
pub(crate) struct Offer {
    said: CardConfig,
    pub(crate) card: Card,
    /// In 1.0 and in 0.3.
    pub(crate) extended_card: (Arc<Value>, Arc<Value>),
    pub(crate) capabilities: Capabilities,
}

// === impl LiveCard ===

impl LiveCard {
    pub(crate) fn new(card: CardConfig, stage: Stage) -> Self {
        Self(Arc::new(Live { offer: ArcSwap::from_pointee(Offer::new(card, &stage)), stage }))
    }

    /// Serves this card from the next request on. Says whether it is another than before.
    #[must_use = "whether anything changed is what there is to tell"]
    pub fn renew(&self, card: CardConfig) -> bool {
        let is_new = self.0.offer.load().said != card;
        if is_new {
            self.0.offer.store(Arc::new(Offer::new(card, &self.0.stage)));
        }
        is_new
    }

    /// For a look.
    pub(crate) fn now(&self) -> Guard<Arc<Offer>> {
        self.0.offer.load()
    }

    /// For as long as a request takes.
    pub(crate) fn offer(&self) -> Arc<Offer> {
        self.0.offer.load_full()
    }
}

// === impl Offer ===

impl Offer {
    fn new(said: CardConfig, Stage { url, secured, signer }: &Stage) -> Self {
        let (one, union) = said.documents(url, *secured, true, signer.as_ref());
        Self {
            card: Card::new(&said, url, *secured, signer.as_ref()),
            extended_card: (Arc::new(one), Arc::new(union)),
            capabilities: Capabilities::new(&said),
            said,
        }
    }
}
