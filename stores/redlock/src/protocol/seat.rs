//! What a node remembers of one lock: who owns it, and how far its tokens went. Without time: an owner whose time is over is
//! taken out by [`Seat::expire`], whenever that is.

/// One lock on one node. `I` is the id of an attempt.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Seat<I> {
    /// The end of the last block that this node reserved or saw reserved.
    pub counter: u64,
    /// Who owns it.
    pub owner: Option<Owner<I>>,
}

/// The owner of a [`Seat`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Owner<I> {
    /// The attempt.
    pub id: I,
    /// The first token that the node gave it, or the one it confirmed.
    pub x: u64,
    /// Whether the node was in good standing when it was given. Stays as it is when that changes.
    pub counted: bool,
}

impl<I> Default for Seat<I> {
    fn default() -> Self {
        Seat { counter: 0, owner: None }
    }
}

impl<I: Copy + Eq> Seat<I> {
    /// Takes a free seat. Whoever has it already gets the same answer again; anybody else none.
    ///
    /// The counter moves past the whole block and, for a lease that is planted here again, up to the end of what it has.
    pub fn acquire(&mut self, id: I, ask: Acquire) -> Option<Owner<I>> {
        if self.owner.is_none() {
            let x = self.counter.max(ask.floor) + 1;
            self.counter = (x + ask.block - 1).max(ask.up_to);
            self.owner = Some(Owner { id, x, counted: ask.counted });
        }
        self.owner.filter(|owner| owner.id == id)
    }

    /// The owner will use the block of this token. Only the owner can, and only upwards: a seat with a higher x was free later
    /// than the token is.
    pub fn confirm(&mut self, id: I, token: u64, block: u64) -> bool {
        match &mut self.owner {
            Some(owner) if owner.id == id && owner.x <= token => {
                owner.x = token;
                self.counter = self.counter.max(token + block - 1);
                true
            }
            _ => false,
        }
    }

    /// The owner will use tokens up to this one. `None` if it is not the owner: nothing is taken again that was lost.
    pub fn extend(&mut self, id: I, up_to: u64) -> Option<Owner<I>> {
        let owner = self.owner.filter(|owner| owner.id == id)?;
        self.counter = self.counter.max(up_to);
        Some(owner)
    }

    /// The owner goes. The tokens above `used` go back: while it was the owner, nobody else got any here.
    pub fn release(&mut self, id: I, used: Option<u64>) -> bool {
        match self.owner {
            Some(owner) if owner.id == id => {
                if let Some(used) = used {
                    self.counter = self.counter.min(used.max(owner.x - 1));
                }
                self.owner = None;
                true
            }
            _ => false,
        }
    }

    /// The owner's time is over.
    pub fn expire(&mut self) -> Option<Owner<I>> {
        self.owner.take()
    }
}

/// How a seat is asked for.
#[derive(Debug, Clone, Copy)]
pub struct Acquire {
    /// The token must be higher than this.
    pub floor: u64,
    /// How many tokens are reserved.
    pub block: u64,
    /// The counter must reach this.
    pub up_to: u64,
    /// Whether the node is in good standing.
    pub counted: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    const ASK: Acquire = Acquire { floor: 100, block: 10, up_to: 0, counted: true };

    #[test]
    fn a_seat_has_one_owner_and_asking_again_is_harmless() {
        let mut seat = Seat::default();
        let first = seat.acquire('a', ASK).unwrap();
        assert_eq!((first.x, seat.counter), (101, 110));
        assert_eq!(seat.acquire('a', ASK), Some(first));
        assert_eq!(seat.acquire('b', ASK), None);
        assert_eq!(seat.counter, 110);
    }

    #[test]
    fn a_confirmation_is_for_the_owner_and_only_upwards() {
        let mut seat = Seat::default();
        seat.acquire('a', ASK);
        assert!(!seat.confirm('b', 200, 10));
        assert!(!seat.confirm('a', 100, 10));
        assert!(seat.confirm('a', 200, 10));
        assert_eq!(seat.counter, 209);
        seat.expire();
        assert!(!seat.confirm('a', 300, 10));
        assert_eq!(seat.counter, 209);
    }

    #[test]
    fn unused_tokens_go_back_and_used_ones_never() {
        let mut seat = Seat::default();
        seat.acquire('a', ASK);
        assert!(!seat.release('b', Some(0)));
        assert!(seat.release('a', Some(104)));
        assert_eq!(seat.counter, 104);
        assert_eq!(seat.acquire('b', ASK).unwrap().x, 105);
        // An attempt that failed used nothing.
        assert!(seat.release('b', Some(0)));
        assert_eq!(seat.counter, 104);
        // One that does not say what it used keeps all.
        seat.acquire('c', ASK);
        assert!(seat.release('c', None));
        assert_eq!(seat.counter, 114);
    }

    #[test]
    fn an_extension_takes_nothing_that_was_lost() {
        let mut seat = Seat::default();
        seat.acquire('a', ASK);
        assert!(seat.extend('a', 500).is_some());
        assert_eq!(seat.counter, 500);
        seat.expire();
        assert_eq!(seat.extend('a', 600), None);
        assert_eq!(seat.counter, 500);
    }
}
