//! Where vectors are kept: those that point alike together, so that a search only looks around.
//!
//! Few vectors lie in one open field, and are all looked at. When there are many, a sample of them is cut
//! into neighbourhoods ([`Plan::make`], which takes seconds and no lock), and vectors move there by and by:
//! [`Vectors::moves`] says where some of them belong, [`Vectors::settle`] puts them there. Meanwhile both
//! are searched, so nothing is ever missing or there twice. New vectors go straight to the new place.

use std::collections::BinaryHeap;

use super::best::{Best, Scored};
use super::columns::Admitted;
use super::vectors::{Code, Codes, Probe};

/// How many vectors lie in a cell of the open field.
const FIELD_CELL: usize = 4096;

/// How many neighbourhoods there are, times the root of the number of vectors.
const NEIGHBOURHOODS: usize = 4;

/// How many vectors of the sample are there for each neighbourhood.
const SAMPLE: usize = 20;

/// How often neighbourhoods are moved to the middle of their vectors.
const ROUNDS: usize = 5;

/// From when on things are done how.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// Up to so many rows that filters admit, each is looked at for itself.
    pub(crate) exact: usize,
    /// From so many vectors on there are neighbourhoods.
    pub(crate) field: usize,
    /// At least so many vectors are looked at there.
    pub(crate) enough: usize,
    /// And at least one of so many.
    pub(crate) share: usize,
    /// At least so many candidates are taken by words.
    pub(crate) by_words: usize,
    /// And so many by meaning.
    pub(crate) by_meaning: usize,
}

impl Limits {
    pub(crate) const USUAL: Self = Self {
        exact: 20_000,
        field: 50_000,
        enough: 32_000,
        share: 6,
        by_words: 128,
        by_meaning: 128,
    };
}

/// The vectors of all slots that have one.
#[derive(Debug)]
pub(super) struct Vectors {
    dimension: usize,
    /// The one that is in use, and the one that is being left or still empty.
    regions: [Region; 2],
    newer: usize,
    places: Vec<Option<Place>>,
    count: usize,
}

/// One way to keep vectors.
#[derive(Debug, Default)]
struct Region {
    /// The middle of every neighbourhood; none in the open field.
    centres: Codes,
    cells: Vec<Cell>,
    /// How many vectors there were when it was planned.
    planned_for: usize,
}

/// Vectors that are looked at together.
#[derive(Debug, Default)]
struct Cell {
    codes: Codes,
    slots: Vec<u32>,
}

/// Where a slot's vector is: the region in the lowest bit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Place {
    cell: std::num::NonZeroU32,
    at: u32,
}

impl Place {
    fn new(region: usize, cell: usize, at: usize) -> Option<Self> {
        let cell = std::num::NonZeroU32::new(((cell as u32 + 1) << 1) | region as u32)?;
        Some(Self {
            cell,
            at: at as u32,
        })
    }

    fn region(self) -> usize {
        (self.cell.get() & 1) as usize
    }

    fn cell(self) -> usize {
        (self.cell.get() >> 1) as usize - 1
    }
}

/// What neighbourhoods are made of.
#[derive(Debug)]
pub(crate) struct Plan {
    sample: Codes,
    dimension: usize,
    neighbourhoods: usize,
    planned_for: usize,
}

/// What was made: the middle of each.
#[derive(Debug)]
pub(crate) struct Neighbourhoods {
    centres: Codes,
    planned_for: usize,
}

/// Where some vectors belong.
#[derive(Debug, Default)]
pub(crate) struct Moves(Vec<(u32, usize)>);

impl Moves {
    /// Whether everything is where it belongs.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Vectors {
    pub(super) fn new(dimension: usize) -> Self {
        Self {
            dimension,
            regions: [Region::default(), Region::default()],
            newer: 0,
            places: Vec::new(),
            count: 0,
        }
    }

    pub(super) fn is_approximate(&self) -> bool {
        self.regions.iter().any(|region| !region.is_field())
    }

    /// Gives a slot that has none a vector, if it is one.
    pub(super) fn put(&mut self, slot: u32, vector: &[f32]) {
        let mut code = Codes::default();
        if vector.len() == self.dimension && code.encode(vector) {
            self.count += 1;
            self.push(slot, code.get(0), None);
        }
    }

    /// Takes it away again.
    pub(super) fn remove(&mut self, slot: u32) {
        let place = self.places.get_mut(slot as usize).and_then(Option::take);
        if let Some(place) = place {
            self.count -= 1;
            self.close(place);
        }
    }

    /// The query as vectors are held against it, if it is one.
    pub(super) fn probe(&self, vector: &[f32]) -> Option<Probe> {
        let fits = vector.len() == self.dimension;
        fits.then(|| Probe::of(vector)).flatten()
    }

    /// The cosine of each slot, 0 for those without a vector.
    pub(super) fn cosines(&self, probe: &Probe, slots: &[u32]) -> Vec<f32> {
        let mut cosines = Vec::with_capacity(slots.len());
        let codes = slots
            .iter()
            .map(|slot| self.code(*slot).unwrap_or_default());
        probe.cosines(codes, &mut cosines);
        cosines
    }

    /// The slots that point most alike, as far as the neighbourhoods around tell.
    pub(super) fn top(
        &self,
        probe: &Probe,
        admitted: &Admitted<'_>,
        most: usize,
        limits: &Limits,
    ) -> Best {
        let mut best = Best::new(most);
        let mut around = BinaryHeap::new();
        let mut cosines = Vec::new();
        let mut cells = Vec::new();
        for region in &self.regions {
            if region.is_field() {
                for cell in &region.cells {
                    cell.search(probe, admitted, &mut best, &mut cosines);
                }
                continue;
            }
            probe.cosines(region.centres.iter(), &mut cosines);
            for (cell, score) in region.cells.iter().zip(&cosines) {
                let slot = cells.len() as u32;
                if !cell.slots.is_empty() {
                    cells.push(cell);
                    around.push(Scored {
                        score: *score,
                        slot,
                    });
                }
            }
        }
        let mut left = (admitted.len() / limits.share).max(limits.enough);
        while let Some(next) = around.pop()
            && left > 0
        {
            let cell = cells[next.slot as usize];
            let seen = cell.search(probe, admitted, &mut best, &mut cosines);
            left = left.saturating_sub(seen);
        }
        best
    }

    /// Whether it is time for other neighbourhoods.
    pub(super) fn is_plan_due(&self, limits: &Limits) -> bool {
        let planned_for = self.regions[self.newer].planned_for;
        self.count >= limits.field.max(1) && self.count >= planned_for * 2 && !self.is_settling()
    }

    /// What neighbourhoods would be made of now, if it is time for others.
    pub(super) fn plan(&self, limits: &Limits) -> Option<Plan> {
        if !self.is_plan_due(limits) {
            return None;
        }
        let neighbourhoods = NEIGHBOURHOODS * self.count.isqrt();
        let step = (self.count / (neighbourhoods * SAMPLE)).max(1);
        let cells = self.regions.iter().flat_map(|region| &region.cells);
        // Every so manieth of each cell in turn: what lies in a cell is in the order of its coming.
        let mut sample = Codes::with_room(self.count / step + 1, self.dimension);
        let mut skipped = 0;
        for cell in cells {
            while skipped < cell.slots.len() {
                sample.push(cell.codes.get(skipped));
                skipped += step;
            }
            skipped -= cell.slots.len();
        }
        Some(Plan {
            sample,
            dimension: self.dimension,
            neighbourhoods,
            planned_for: self.count,
        })
    }

    /// Takes new neighbourhoods in use. False if the last ones are still being moved to.
    pub(super) fn adopt(&mut self, made: Neighbourhoods) -> bool {
        if self.is_settling() || made.centres.len() == 0 {
            return false;
        }
        let older = self.newer;
        self.newer = 1 - older;
        let mut cells = Vec::new();
        cells.resize_with(made.centres.len(), Cell::default);
        self.regions[self.newer] = Region {
            centres: made.centres,
            cells,
            planned_for: made.planned_for,
        };
        self.leave();
        true
    }

    /// Where at most so many vectors belong that are still where they were before.
    pub(super) fn moves(&self, most: usize) -> Moves {
        let older = &self.regions[1 - self.newer];
        let newer = &self.regions[self.newer];
        let slots = older
            .cells
            .iter()
            .rev()
            .flat_map(|cell| cell.slots.iter().rev());
        let mut cosines = Vec::new();
        let moves = slots.take(most).filter_map(|slot| {
            let cell = newer.nearest(self.code(*slot)?, &mut cosines);
            Some((*slot, cell))
        });
        Moves(moves.collect())
    }

    /// Moves them there. What has changed since is where it belongs already.
    pub(super) fn settle(&mut self, moves: &Moves) {
        for (slot, cell) in &moves.0 {
            let Some(Some(place)) = self.places.get(*slot as usize).copied() else {
                continue;
            };
            if place.region() == self.newer {
                continue;
            }
            let mut code = Codes::default();
            code.push(
                self.regions[place.region()].cells[place.cell()]
                    .codes
                    .get(place.at as usize),
            );
            self.close(place);
            self.push(*slot, code.get(0), Some(*cell));
        }
        self.leave();
    }

    fn is_settling(&self) -> bool {
        let older = &self.regions[1 - self.newer];
        older.cells.iter().any(|cell| !cell.slots.is_empty())
    }

    /// Lets go of the region before, once nothing is there any more.
    fn leave(&mut self) {
        if !self.is_settling() {
            self.regions[1 - self.newer] = Region::default();
        }
    }

    fn code(&self, slot: u32) -> Option<Code<'_>> {
        let place = self.places.get(slot as usize).copied().flatten()?;
        let cell = &self.regions[place.region()].cells[place.cell()];
        Some(cell.codes.get(place.at as usize))
    }

    /// Puts a vector in the region that is in use, to the others of this cell or where it belongs.
    fn push(&mut self, slot: u32, code: Code<'_>, cell: Option<usize>) {
        let newer = self.newer;
        let region = &mut self.regions[newer];
        let at_cell = cell.unwrap_or_else(|| region.cell_for(code));
        let cell = &mut region.cells[at_cell];
        let place = Place::new(newer, at_cell, cell.slots.len());
        cell.codes.push(code);
        cell.slots.push(slot);
        let at = slot as usize;
        if at >= self.places.len() {
            self.places.resize(at + 1, None);
        }
        self.places[at] = place;
    }

    /// Closes the gap that a vector leaves, with the last of its cell or of the whole field.
    fn close(&mut self, place: Place) {
        let region = &mut self.regions[place.region()];
        let from = if region.is_field() {
            region.cells.len() - 1
        } else {
            place.cell()
        };
        let giver = &mut region.cells[from];
        let last = giver.slots.len() - 1;
        if (from, last) == (place.cell(), place.at as usize) {
            giver.slots.pop();
            giver.codes.pop();
        } else if let Some(slot) = giver.slots.pop() {
            let mut code = Codes::default();
            code.push(giver.codes.get(last));
            giver.codes.pop();
            let taker = &mut region.cells[place.cell()];
            taker.codes.set(place.at as usize, code.get(0));
            taker.slots[place.at as usize] = slot;
            self.places[slot as usize] = Some(place);
        }
        let giver = &mut region.cells[from];
        if giver.slots.is_empty() {
            *giver = Cell::default();
            if region.is_field() {
                region.cells.pop();
            }
        }
    }
}

impl Region {
    /// Whether there are no neighbourhoods.
    fn is_field(&self) -> bool {
        self.centres.len() == 0
    }

    /// Which cell a vector belongs to, which in the open field is one with room.
    fn cell_for(&mut self, code: Code<'_>) -> usize {
        if !self.is_field() {
            return self.nearest(code, &mut Vec::new());
        }
        if self
            .cells
            .last()
            .is_none_or(|cell| cell.slots.len() >= FIELD_CELL)
        {
            self.cells.push(Cell::default());
        }
        self.cells.len() - 1
    }

    fn nearest(&self, code: Code<'_>, cosines: &mut Vec<f32>) -> usize {
        nearest(&Probe::of_code(code), &self.centres, cosines)
    }
}

impl Cell {
    /// Holds its admitted vectors against the probe, and says how many they are. All in a row are faster
    /// than some of them, up to a point.
    fn search(
        &self,
        probe: &Probe,
        admitted: &Admitted<'_>,
        best: &mut Best,
        cosines: &mut Vec<f32>,
    ) -> usize {
        if admitted.is_all() {
            probe.cosines(self.codes.iter(), cosines);
            for (slot, cosine) in self.slots.iter().zip(&*cosines) {
                best.put(*slot, *cosine);
            }
            return self.slots.len();
        }
        let slots = self.slots.iter().enumerate();
        let admitted: Vec<(usize, u32)> = slots
            .filter(|(_, slot)| admitted.has(**slot))
            .map(|(at, slot)| (at, *slot))
            .collect();
        if admitted.len() * 3 < self.slots.len() {
            let codes = admitted.iter().map(|(at, _)| self.codes.get(*at));
            probe.cosines(codes, cosines);
            for ((_, slot), cosine) in admitted.iter().zip(&*cosines) {
                best.put(*slot, *cosine);
            }
        } else {
            probe.cosines(self.codes.iter(), cosines);
            for (at, slot) in &admitted {
                best.put(*slot, cosines[*at]);
            }
        }
        admitted.len()
    }
}

impl Plan {
    /// Cuts the sample into neighbourhoods (k-means by cosine).
    pub(crate) fn make(self) -> Neighbourhoods {
        let of = self.sample.len();
        let mut numbers = Numbers(of as u64);
        let mut centres = Codes::default();
        for _ in 0..self.neighbourhoods.min(of) {
            centres.push(self.sample.get(numbers.below(of)));
        }
        let mut cosines = Vec::new();
        for _ in 0..ROUNDS {
            let mut sums = vec![0.0; centres.len() * self.dimension];
            for code in self.sample.iter() {
                let nearest = nearest(&Probe::of_code(code), &centres, &mut cosines);
                let sum = &mut sums[nearest * self.dimension..(nearest + 1) * self.dimension];
                for (sum, number) in sum.iter_mut().zip(code.codes) {
                    *sum += f32::from(*number) * code.scale;
                }
            }
            let mut middles = Codes::default();
            for sum in sums.chunks_exact(self.dimension) {
                // Nobody came: it begins anew somewhere else.
                if !middles.encode(sum) {
                    middles.push(self.sample.get(numbers.below(of)));
                }
            }
            centres = middles;
        }
        Neighbourhoods {
            centres,
            planned_for: self.planned_for,
        }
    }
}

fn nearest(probe: &Probe, centres: &Codes, cosines: &mut Vec<f32>) -> usize {
    probe.cosines(centres.iter(), cosines);
    let found = cosines.iter().enumerate();
    let found = found.max_by(|(_, one), (_, other)| one.total_cmp(other));
    found.map_or(0, |(at, _)| at)
}

/// Numbers without an order, the same ones every time (`SplitMix64`).
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % limit.max(1) as u64) as usize
    }
}
