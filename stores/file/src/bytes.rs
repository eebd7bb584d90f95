//! Numbers and texts as bytes: little endian, texts with their length in front. Reading never panics.

use leasehold_core::{Label, Want};

/// Bytes being read from the front. Every method answers `None` when what is left can't be that.
pub(crate) struct Bytes<'a>(pub(crate) &'a [u8]);

macro_rules! numbers {
    ($($name:ident)*) => {
        impl<'a> Bytes<'a> {
            $(pub(crate) fn $name(&mut self) -> Option<$name> {
                let (head, rest) = self.0.split_first_chunk()?;
                self.0 = rest;
                Some($name::from_le_bytes(*head))
            })*
        }
    };
}

numbers! { u8 u16 u32 u64 u128 }

impl<'a> Bytes<'a> {
    pub(crate) fn flag(&mut self) -> Option<bool> {
        match self.u8()? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }

    /// A text with its length in two bytes.
    pub(crate) fn text(&mut self) -> Option<&'a str> {
        let len = self.u16()?;
        let (text, rest) = self.0.split_at_checked(usize::from(len))?;
        self.0 = rest;
        std::str::from_utf8(text).ok()
    }

    pub(crate) fn label(&mut self) -> Option<Label> {
        self.text().filter(|text| text.len() <= Label::MAX_BYTES).map(Label::new)
    }

    pub(crate) fn want(&mut self) -> Option<Want> {
        let (kind, n, of) = (self.u8()?, self.u32()?, self.u32()?);
        match (kind, n, of) {
            (0, 0, 0) => Some(Want::Exclusive),
            (1, 0, 0) => Some(Want::Shared),
            (2, _, _) => Some(Want::Permits { n, of }),
            _ => None,
        }
    }

    /// `None` inside where a number may be missing.
    pub(crate) fn maybe_u64(&mut self) -> Option<Option<u64>> {
        let (there, number) = (self.flag()?, self.u64()?);
        Some(there.then_some(number))
    }
}

pub(crate) fn put_text(out: &mut Vec<u8>, text: &str) {
    let len = u16::try_from(text.len()).expect("names and labels are short");
    out.extend_from_slice(&len.to_le_bytes());
    out.extend_from_slice(text.as_bytes());
}

pub(crate) fn put_want(out: &mut Vec<u8>, want: Want) {
    let (kind, n, of): (u8, u32, u32) = match want {
        Want::Exclusive => (0, 0, 0),
        Want::Shared => (1, 0, 0),
        Want::Permits { n, of } => (2, n, of),
    };
    out.push(kind);
    out.extend_from_slice(&n.to_le_bytes());
    out.extend_from_slice(&of.to_le_bytes());
}

pub(crate) fn put_maybe_u64(out: &mut Vec<u8>, number: Option<u64>) {
    out.push(u8::from(number.is_some()));
    out.extend_from_slice(&number.unwrap_or(0).to_le_bytes());
}
