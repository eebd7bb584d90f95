//! The one rule: **the holders are the longest compatible prefix of the queue.**
//!
//! You hold the lock if, and only if, your entry is inside that prefix. Mutex, read/write lock, semaphore and leader
//! are faces of this sentence, not algorithms of their own.

use crate::Want;

/// How many entries from the front of the queue hold the lock.
///
/// `wants` is the queue, front first. `held` of them hold already and keep holding whatever the rest looks like (a
/// lowered limit takes no permit away). `limit` is the number of permits in force, if the queue is a semaphore's.
///
/// ```
/// use leasehold_core::{Want, rule::holders};
/// use Want::*;
/// assert_eq!(holders(&[Exclusive, Shared], 0, None), 1);
/// assert_eq!(holders(&[Shared, Shared, Exclusive, Shared], 0, None), 2); // a queued writer holds back later readers
/// assert_eq!(holders(&[Permits { n: 2, of: 3 }, Permits { n: 2, of: 3 }, Permits { n: 1, of: 3 }], 0, Some(3)), 1);
/// ```
pub fn holders(wants: &[Want], held: usize, limit: Option<u32>) -> usize {
    let mut reach = held.min(wants.len());
    let mut room = Room::of(&wants[..reach], limit);
    while let Some(&next) = wants.get(reach) {
        if !room.admit(next) {
            break;
        }
        reach += 1;
    }
    reach
}

/// Whether one more entry could hold beside all those that hold: what a barging claim asks.
pub fn admits(holding: impl IntoIterator<Item = Want>, newcomer: Want, limit: Option<u32>) -> bool {
    let mut room = Room::empty(limit);
    holding.into_iter().for_each(|want| room.force(want));
    room.admit(newcomer)
}

/// What the entries inside the prefix leave open for the next.
struct Room {
    taken: Option<Want>,
    permits: u64,
    limit: Option<u32>,
}

impl Room {
    fn empty(limit: Option<u32>) -> Self {
        Room { taken: None, permits: 0, limit }
    }

    fn of(holding: &[Want], limit: Option<u32>) -> Self {
        let mut room = Room::empty(limit);
        holding.iter().for_each(|want| room.force(*want));
        room
    }

    fn force(&mut self, want: Want) {
        if let Want::Permits { n, .. } = want {
            self.permits += u64::from(n);
        }
        self.taken = Some(want);
    }

    fn admit(&mut self, want: Want) -> bool {
        let fits = match (self.taken, want) {
            // A limit that was lowered below what one entry wants binds even an empty semaphore.
            (None | Some(Want::Permits { .. }), Want::Permits { n, of }) => {
                self.permits + u64::from(n) <= u64::from(self.limit.unwrap_or(of))
            }
            (None, _) => true,
            (Some(Want::Shared), Want::Shared) => true,
            _ => false,
        };
        if fits {
            self.force(want);
        }
        fits
    }
}
