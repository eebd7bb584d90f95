//! Visits every state that can be reached, and shows the way to a bad one.

use std::collections::{HashMap, VecDeque};
use std::fmt::{Debug, Write};
use std::hash::{BuildHasher, BuildHasherDefault, Hash};

/// What can be explored.
pub trait Model {
    /// Everything that matters at one moment.
    type State: Clone + Hash + Debug;
    /// Something that can happen.
    type Event: Copy + Debug;

    /// Where it starts.
    fn start(&self) -> Self::State;

    /// Everything that can happen next: adds each event with the state after it.
    fn next(&self, state: &Self::State, out: &mut Vec<(Self::Event, Self::State)>);

    /// What is wrong with a state.
    fn wrong(&self, state: &Self::State) -> Option<String>;
}

/// What was found.
#[derive(Debug)]
pub enum Found {
    /// All of so many states are good.
    Good {
        /// How many.
        states: usize,
    },
    /// A bad state, and the shortest way to it.
    Bad {
        /// What is wrong, and how it came about.
        story: String,
    },
}

impl Found {
    /// How many states there are. Panics with the story if one is bad.
    pub fn expect_good(self) -> usize {
        match self {
            Found::Good { states } => states,
            Found::Bad { story } => panic!("{story}"),
        }
    }

    /// The story. Panics if all is good.
    pub fn expect_bad(self, what: &str) -> String {
        match self {
            Found::Bad { story } => story,
            Found::Good { states } => panic!("{what}: nothing was found wrong in {states} states"),
        }
    }
}

/// Explores all states, nearest first. Panics if there are more than `most`: then the setup is too large.
///
/// States are remembered by a hash of 64 bits. With ten million of them the chance to overlook one is below one in 100,000.
pub fn explore<M: Model>(model: &M, most: usize) -> Found {
    let hasher = BuildHasherDefault::<Mix>::default();
    let start = model.start();
    let first = hasher.hash_one(&start);
    let mut came_from: Ways<M::Event> = HashMap::default();
    came_from.insert(first, None);
    let mut line = VecDeque::from([(first, start)]);
    let mut next = Vec::new();
    while let Some((mark, state)) = line.pop_front() {
        if let Some(what) = model.wrong(&state) {
            let mut story = format!("{what}\n");
            for event in way_to(&came_from, mark) {
                let _ = writeln!(story, "  {event:?}");
            }
            let _ = write!(story, "{state:#?}");
            return Found::Bad { story };
        }
        model.next(&state, &mut next);
        for (event, state) in next.drain(..) {
            let reached = hasher.hash_one(&state);
            if let std::collections::hash_map::Entry::Vacant(new) = came_from.entry(reached) {
                new.insert(Some((mark, event)));
                line.push_back((reached, state));
            }
        }
        assert!(came_from.len() <= most, "more than {most} states");
    }
    Found::Good { states: came_from.len() }
}

/// Each state by its hash: the state before it, and what happened.
type Ways<E> = HashMap<u64, Option<(u64, E)>, BuildHasherDefault<Same>>;

fn way_to<E: Copy>(came_from: &Ways<E>, mut at: u64) -> Vec<E> {
    let mut way = Vec::new();
    while let Some(Some((before, event))) = came_from.get(&at) {
        way.push(*event);
        at = *before;
    }
    way.reverse();
    way
}

/// The keys are hashes already.
#[derive(Default)]
struct Same(u64);

impl std::hash::Hasher for Same {
    fn write(&mut self, _: &[u8]) {}

    fn write_u64(&mut self, key: u64) {
        self.0 = key;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// Multiplies, and folds the upper half of the product into the lower: fast, and every bit of the input reaches every bit.
#[derive(Default)]
struct Mix(u64);

impl Mix {
    fn add(&mut self, value: u64) {
        let mixed = self.0.rotate_left(23) ^ value ^ 0x9E37_79B9_7F4A_7C15;
        let product = u128::from(mixed) * 0xE703_7ED1_A0B4_28DB;
        self.0 = (product ^ (product >> 64)) as u64;
    }
}

impl std::hash::Hasher for Mix {
    fn write(&mut self, bytes: &[u8]) {
        for part in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..part.len()].copy_from_slice(part);
            self.add(u64::from_le_bytes(word));
        }
    }

    fn write_u8(&mut self, value: u8) {
        self.add(value.into());
    }

    fn write_isize(&mut self, value: isize) {
        self.add(value as u64);
    }

    fn write_u64(&mut self, value: u64) {
        self.add(value);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}
