//! The markers of a file, read strictly.
//!
//! Where a file breaks the rules, libjpeg warns and goes on, and Pillow takes what it got till then: what comes of that is
//! the engine's to say. Such files are told here, from their markers, before anything is decoded.

use memchr::memchr;

use super::tables;
use crate::unfit::Unfit;

/// Scans of one file: encoders write about ten, and each costs a walk over all blocks.
pub(super) const SCANS_MAX: usize = 64;
/// Largest sampling factor of a component, and most blocks that components interleave in.
const SAMPLING_MAX: u8 = 4;
const INTERLEAVED_BLOCKS_MAX: u32 = 10;
/// Bits by which a progressive scan may fall short.
const SHORT_BITS_MAX: u8 = 13;

/// What a file consists of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Outline {
    /// One or three.
    pub(super) components: usize,
}

struct Frame {
    progressive: bool,
    width: u32,
    height: u32,
    components: Vec<Component>,
    /// Largest sampling factors.
    horizontal_max: u32,
    vertical_max: u32,
}

struct Component {
    id: u8,
    horizontal: u32,
    vertical: u32,
    /// The low bits that each coefficient still lacks; none before its first scan.
    lacks: [Option<u8>; 64],
}

/// A scan's coefficients, the bits that they lacked before it, and those that they lack after it.
struct Progress {
    first: u8,
    last: u8,
    before: u8,
    after: u8,
}

impl Outline {
    /// Reads a file to its end.
    pub(super) fn read(file: &[u8]) -> Result<Self, Unfit> {
        let mut rest = file.strip_prefix(b"\xff\xd8").ok_or_else(|| Unfit::broken("no start"))?;
        let (mut frame, mut restart_interval, mut scans) = (None, 0, 0);
        loop {
            let (code, after) = marker(rest)?;
            if code == 0xd9 {
                break;
            }
            let (segment, after) = segment(after)?;
            rest = after;
            match code {
                0xc4 => tables::huffman(segment)?,
                0xdb => tables::quantisation(segment)?,
                0xdd => restart_interval = restarts_every(segment)?,
                0xc0..=0xc2 if frame.is_none() => frame = Some(Frame::read(segment, code == 0xc2)?),
                0xda => {
                    let frame = frame.as_mut().ok_or_else(|| Unfit::broken("a scan without a frame"))?;
                    let units = frame.scan(segment)?;
                    scans += 1;
                    let restarts = units
                        .checked_div(restart_interval)
                        .map_or(0, |_| units.div_ceil(restart_interval).saturating_sub(1));
                    rest = after_scan(rest, restarts)?;
                }
                0xe0..=0xef | 0xfe => {}
                0xc3 | 0xc5..=0xcf => return Err(Unfit::Colours),
                _ => return Err(Unfit::broken("a marker out of place")),
            }
            if scans > SCANS_MAX {
                return Err(Unfit::broken("too many scans"));
            }
        }
        let frame =
            frame.filter(Frame::is_complete).ok_or_else(|| Unfit::broken("an end before the last scan"))?;
        Ok(Self { components: frame.components.len() })
    }
}

impl Frame {
    fn read(segment: &[u8], progressive: bool) -> Result<Self, Unfit> {
        let bogus = || Unfit::broken("a bogus frame");
        let (&[precision, y1, y0, x1, x0, count], listed) = segment.split_first_chunk().ok_or_else(bogus)?;
        if precision != 8 || !matches!(count, 1 | 3) {
            return Err(Unfit::Colours);
        }
        let (listed, excess) = listed.as_chunks();
        if listed.len() != usize::from(count) || !excess.is_empty() {
            return Err(bogus());
        }
        let mut components: Vec<Component> = Vec::new();
        for &[id, sampling, table] in listed {
            let (horizontal, vertical) = (sampling >> 4, sampling & 15);
            let factors = 1..=SAMPLING_MAX;
            if !factors.contains(&horizontal) || !factors.contains(&vertical) || table > 3 {
                return Err(bogus());
            }
            if components.iter().any(|other| other.id == id) {
                return Err(bogus());
            }
            let (horizontal, vertical) = (u32::from(horizontal), u32::from(vertical));
            components.push(Component { id, horizontal, vertical, lacks: [None; 64] });
        }
        Ok(Self {
            progressive,
            width: u16::from_be_bytes([x1, x0]).into(),
            height: u16::from_be_bytes([y1, y0]).into(),
            horizontal_max: components.iter().map(|component| component.horizontal).max().unwrap_or(1),
            vertical_max: components.iter().map(|component| component.vertical).max().unwrap_or(1),
            components,
        })
    }

    /// Takes note of a scan; returns the units that its data consist of.
    fn scan(&mut self, header: &[u8]) -> Result<u32, Unfit> {
        let bogus = || Unfit::broken("a bogus scan");
        let (&[count], rest) = header.split_first_chunk().ok_or_else(bogus)?;
        let (listed, rest) = rest.split_at_checked(usize::from(count) * 2).ok_or_else(bogus)?;
        let &[first, last, bits] = rest.as_array().ok_or_else(bogus)?;
        let progress = Progress { first, last, before: bits >> 4, after: bits & 15 };
        if !progress.is_valid(self.progressive, count) {
            return Err(bogus());
        }
        let mut of_scan = Vec::new();
        let mut components = self.components.iter_mut();
        for &[id, _] in listed.as_chunks().0 {
            let component = components.find(|component| component.id == id).ok_or_else(bogus)?;
            component.advance(&progress).ok_or_else(bogus)?;
            of_scan.push((component.horizontal, component.vertical));
        }
        self.units(&of_scan).ok_or_else(bogus)
    }

    /// Counts the units of a scan over components of these sampling factors; none where they must not be interleaved.
    fn units(&self, of_scan: &[(u32, u32)]) -> Option<u32> {
        let units = |across: u32, down: u32| across.div_ceil(8) * down.div_ceil(8);
        if let &[(horizontal, vertical)] = of_scan {
            let across = (self.width * horizontal).div_ceil(self.horizontal_max);
            return Some(units(across, (self.height * vertical).div_ceil(self.vertical_max)));
        }
        let blocks: u32 = of_scan.iter().map(|(horizontal, vertical)| horizontal * vertical).sum();
        let interleaves = !of_scan.is_empty() && blocks <= INTERLEAVED_BLOCKS_MAX;
        interleaves
            .then(|| units(self.width.div_ceil(self.horizontal_max), self.height.div_ceil(self.vertical_max)))
    }

    fn is_complete(&self) -> bool {
        self.components.iter().flat_map(|component| component.lacks).all(|lacks| lacks == Some(0))
    }
}

impl Component {
    /// Takes note of a scan; none if it is not the next of its coefficients.
    fn advance(&mut self, progress: &Progress) -> Option<()> {
        if progress.first > 0 && self.lacks.first() == Some(&None) {
            return None;
        }
        let coefficients = usize::from(progress.first)..=usize::from(progress.last);
        let begun = progress.before > 0;
        for lacks in self.lacks.get_mut(coefficients)? {
            if *lacks != begun.then_some(progress.before) {
                return None;
            }
            *lacks = Some(progress.after);
        }
        Some(())
    }
}

impl Progress {
    fn is_valid(&self, progressive: bool, components: u8) -> bool {
        let whole = (self.first, self.last, self.before, self.after) == (0, 63, 0, 0);
        let apart = self.last < 64 && self.first <= self.last && components == 1;
        let coefficients = if self.first == 0 { self.last == 0 } else { apart };
        let next = self.before == 0 || self.before == self.after + 1;
        if progressive { coefficients && next && self.after <= SHORT_BITS_MAX } else { whole }
    }
}

/// Reads a marker, which may be padded.
fn marker(rest: &[u8]) -> Result<(u8, &[u8]), Unfit> {
    let padding = rest.iter().take_while(|byte| **byte == 0xff).count();
    match rest.get(padding..).and_then(<[u8]>::split_first) {
        Some((code, after)) if padding > 0 => Ok((*code, after)),
        _ => Err(Unfit::broken("no marker where one must be")),
    }
}

/// Reads what belongs to a marker.
fn segment(rest: &[u8]) -> Result<(&[u8], &[u8]), Unfit> {
    let bogus = || Unfit::broken("a bogus length");
    let (&length, rest) = rest.split_first_chunk().ok_or_else(bogus)?;
    let length = usize::from(u16::from_be_bytes(length)).checked_sub(2);
    length.and_then(|length| rest.split_at_checked(length)).ok_or_else(bogus)
}

fn restarts_every(segment: &[u8]) -> Result<u32, Unfit> {
    let interval = segment.as_array().ok_or_else(|| Unfit::broken("a bogus restart interval"))?;
    Ok(u16::from_be_bytes(*interval).into())
}

/// Skips a scan's data, in which this many restarts must be, in order; returns what begins with the next marker.
fn after_scan(mut rest: &[u8], restarts: u32) -> Result<&[u8], Unfit> {
    let mut seen = 0_u32;
    while let Some(next) = memchr(0xff, rest).and_then(|at| rest.get(at..)) {
        match next.get(1) {
            Some(0) => {}
            Some(code @ 0xd0..=0xd7) if u32::from(code & 7) == seen % 8 => seen += 1,
            Some(0xd0..=0xd7 | 0xff) | None => break,
            Some(_) if seen == restarts => return Ok(next),
            Some(_) => break,
        }
        rest = next.get(2..).unwrap_or_default();
    }
    Err(Unfit::broken("a scan without an end, or with other restarts than announced"))
}
