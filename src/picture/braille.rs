//! A raster of dots in braille characters: two dots wide and four high each.

/// Bits of a character's dots, by column and line, as Unicode numbers them.
const DOTS: [[u32; 4]; 2] = [[0x01, 0x02, 0x04, 0x40], [0x08, 0x10, 0x20, 0x80]];

/// The braille character without dots.
const BLANK: u32 = 0x2800;

/// Dots in character cells.
#[derive(Debug, Clone)]
pub(super) struct Raster {
    columns: usize,
    cells: Vec<u32>,
}

impl Raster {
    /// An empty raster of so many cells.
    pub(super) fn new(columns: usize, lines: usize) -> Self {
        Self {
            columns,
            cells: vec![0; columns.saturating_mul(lines)],
        }
    }

    /// Sets a dot, counted from the left and from the top; one outside is left out.
    pub(super) fn set(&mut self, x: usize, y: usize) {
        let (column, line) = (x / 2, y / 4);
        if column >= self.columns {
            return;
        }
        let bit = DOTS.get(x % 2).and_then(|dots| dots.get(y % 4));
        let cell = self
            .cells
            .get_mut(line.saturating_mul(self.columns).saturating_add(column));
        if let (Some(bit), Some(cell)) = (bit, cell) {
            *cell |= bit;
        }
    }

    /// The character of a cell; none where it has no dot.
    pub(super) fn cell(&self, column: usize, line: usize) -> Option<char> {
        let bits = self
            .cells
            .get(line.saturating_mul(self.columns).saturating_add(column))?;
        (*bits > 0).then(|| char::from_u32(BLANK | bits)).flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dots_are_where_unicode_has_them() {
        let mut raster = Raster::new(2, 2);
        for y in 0..4 {
            raster.set(0, y);
        }
        raster.set(3, 7);
        raster.set(4, 0);
        raster.set(0, 8);
        assert_eq!(raster.cell(0, 0), Some('⡇'));
        assert_eq!(raster.cell(1, 1), Some('⢀'));
        assert_eq!(raster.cell(1, 0), None);
    }
}
