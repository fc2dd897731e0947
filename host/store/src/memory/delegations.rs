//! Delegations in memory. Their owner bounds their number; this module deletes nothing on its own.

use std::sync::{MutexGuard, PoisonError};

use async_trait::async_trait;
use talaria_turns::{Delegation, DelegationStore, StoreError};

use super::Memory;

impl Memory {
    fn all_delegations(&self) -> MutexGuard<'_, Vec<Delegation>> {
        self.delegations.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl DelegationStore for Memory {
    async fn delegations(&self) -> Result<Vec<Delegation>, StoreError> {
        Ok(self.all_delegations().clone())
    }

    async fn put_delegation(&self, delegation: &Delegation) -> Result<(), StoreError> {
        let mut all = self.all_delegations();
        match all.iter_mut().find(|known| known.id == delegation.id) {
            Some(known) => *known = delegation.clone(),
            None => all.push(delegation.clone()),
        }
        Ok(())
    }

    async fn delete_delegations(&self, ids: &[Box<str>]) -> Result<(), StoreError> {
        self.all_delegations().retain(|known| !ids.contains(&known.id));
        Ok(())
    }
}
