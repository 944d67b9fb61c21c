use std::sync::mpsc;

use datafusion::arrow::array::{ArrayRef, AsArray, Int64Array};
use datafusion::arrow::datatypes::{DataType, Field, Int64Type, Schema};
use datafusion::common::exec_err;

use super::*;
use crate::error::refusal;

fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![Field::new("v", DataType::Int64, true)]))
}

/// A batch whose values are the numbers of its rows.
fn numbers(range: std::ops::Range<u64>) -> RecordBatch {
    let values = range.map(|number| i64::try_from(number).unwrap());
    let column: ArrayRef = Arc::new(Int64Array::from_iter_values(values));
    RecordBatch::try_new(schema(), vec![column]).unwrap()
}

fn values(batch: &RecordBatch) -> Vec<i64> {
    batch
        .column(0)
        .as_primitive::<Int64Type>()
        .values()
        .to_vec()
}

fn figures(log: &AppendLog) -> (u64, u64, u64) {
    (log.base(), log.len(), log.rows())
}

#[test]
fn whole_batches_are_removed_and_the_others_keep_their_numbers() {
    let log = AppendLog::new(schema());
    assert_eq!((figures(&log), log.is_empty()), ((0, 0, 0), true));
    log.append(&[numbers(0..3), numbers(3..3), numbers(3..5)])
        .unwrap();
    log.append(&[numbers(5..9)]).unwrap();
    for (row, base) in [(0, 0), (2, 0), (3, 3), (4, 3), (3, 3), (8, 5)] {
        log.drop_before(row);
        assert_eq!(figures(&log), (base, 9 - base, 9), "before {row}");
    }
    assert_eq!(log.rest_from(4), Err(Removed { base: 5 }));
    let rest = log.rest_from(7).unwrap().unwrap();
    assert_eq!(values(&rest), [7, 8]);
    log.drop_before(100);
    assert_eq!((figures(&log), log.is_empty()), ((9, 0, 9), true));
    assert!(log.snapshot().is_empty());
    assert_eq!(log.rest_from(9), Ok(None));
    log.drop_before(100);
    log.append(&[numbers(9..10)]).unwrap();
    assert_eq!(figures(&log), (9, 1, 10));
    assert_eq!(values(&log.rest_from(9).unwrap().unwrap()), [9]);
}

#[test]
fn a_large_batch_is_cut() {
    let log = AppendLog::new(schema());
    let rows = BATCH_ROWS as u64 + 1;
    log.append(&[numbers(0..rows)]).unwrap();
    log.drop_before(rows - 1);
    assert_eq!(figures(&log), (rows - 1, 1, rows));
}

#[tokio::test]
async fn a_reader_goes_on_behind_its_position_and_refuses_where_rows_are_gone() {
    let log = Arc::new(AppendLog::with_base(schema(), 20));
    assert_eq!(figures(&log), (20, 0, 20));
    let reader =
        |from: Option<Position>| LogReader::new("t".to_owned(), Arc::clone(&log), &[0], from);
    let mut anew = reader(None);
    assert!(matches!(anew.next().await.unwrap(), Arrival::Waiting));
    log.append(&[numbers(20..22), numbers(22..24)]).unwrap();
    anew.arrived().await;
    let Arrival::Rows(batch) = anew.next().await.unwrap() else {
        panic!("rows have arrived");
    };
    assert_eq!(values(&batch), [20, 21]);
    assert_eq!(anew.position(2), Position::Rows(22));

    log.drop_before(22);
    let mut behind = reader(Some(Position::Rows(21)));
    let error = behind.next().await.unwrap_err();
    let refusal = refusal(&error).unwrap();
    assert_eq!(refusal.condition, "SOURCE_ROWS_GONE");
    assert_eq!(
        refusal.message,
        "t was read up to row 21, and its rows before row 22 have been removed (rows are counted from 0)."
    );
    let mut there = reader(Some(Position::Rows(22)));
    assert!(matches!(there.next().await.unwrap(), Arrival::Rows(_)));
}

/// Notes what it is given; fails while `broken`.
#[derive(Debug, Default)]
struct Notes {
    broken: Mutex<bool>,
    kept: Mutex<Vec<(u64, u64)>>,
}

impl Keep for Notes {
    fn keep(&self, start: u64, batches: &[RecordBatch], _arrived: Option<i64>) -> Result<()> {
        if *self.broken.lock().unwrap() {
            return exec_err!("the disk is full");
        }
        let rows = batches.iter().map(|batch| batch.num_rows() as u64).sum();
        self.kept.lock().unwrap().push((start, rows));
        Ok(())
    }

    fn let_go(&self, row: u64) -> Result<u64> {
        Ok(row)
    }
}

#[test]
fn rows_that_could_not_be_kept_are_not_appended() {
    let notes = Arc::new(Notes::default());
    let keep = Arc::clone(&notes) as Arc<dyn Keep>;
    let log = AppendLog::with_base(schema(), 5).kept_by(keep);
    log.append(&[numbers(5..7), numbers(7..8)]).unwrap();
    *notes.broken.lock().unwrap() = true;
    assert!(log.append(&[numbers(8..9)]).is_err());
    assert_eq!(figures(&log), (5, 3, 8));
    // No rows need no disk.
    log.append(&[numbers(8..8)]).unwrap();
    *notes.broken.lock().unwrap() = false;
    log.append(&[numbers(8..9)]).unwrap();
    assert_eq!(figures(&log), (5, 4, 9));
    assert_eq!(*notes.kept.lock().unwrap(), [(5, 3), (8, 1)]);
}

/// Says that it was called, and waits until it may end.
#[derive(Debug)]
struct Slow {
    called: mpsc::Sender<u64>,
    may_end: Mutex<mpsc::Receiver<()>>,
}

impl Keep for Slow {
    fn keep(&self, start: u64, _batches: &[RecordBatch], _arrived: Option<i64>) -> Result<()> {
        self.called.send(start).unwrap();
        self.may_end.lock().unwrap().recv().unwrap();
        Ok(())
    }

    fn let_go(&self, row: u64) -> Result<u64> {
        Ok(row)
    }
}

#[test]
fn readers_do_not_wait_while_rows_are_made_durable_and_writers_do() {
    let (called, calls) = mpsc::channel();
    let (end, may_end) = mpsc::channel();
    let may_end = Mutex::new(may_end);
    let log = AppendLog::new(schema()).kept_by(Arc::new(Slow { called, may_end }));
    std::thread::scope(|scope| {
        let append = || log.append(&[numbers(0..2)]).unwrap();
        scope.spawn(append);
        scope.spawn(append);
        assert_eq!(calls.recv().unwrap(), 0);
        assert_eq!(figures(&log), (0, 0, 0));
        assert_eq!(log.rest_from(0), Ok(None));
        end.send(()).unwrap();
        // The second writer's rows come behind those of the first, which are visible.
        assert_eq!(calls.recv().unwrap(), 2);
        assert_eq!(figures(&log), (0, 2, 2));
        end.send(()).unwrap();
    });
    assert_eq!(figures(&log), (0, 4, 4));
}

#[test]
fn hidden_rows_stay_hidden_where_rows_before_them_have_gone() {
    let log = AppendLog::new(schema());
    log.hide(&[1, 5]);
    // Of ten rows those from the fourth on are kept.
    let kept = [numbers(4..10)];
    log.restore(4, 4, &kept, Arrivals::default()).unwrap();
    assert_eq!(figures(&log), (4, 6, 10));
    assert!(log.is_hidden(5) && !log.is_hidden(1));
    let [before, behind] = log.split_at(6);
    let rows = |batches: &[RecordBatch]| batches.iter().map(RecordBatch::num_rows).sum::<usize>();
    assert_eq!((rows(&before), rows(&behind)), (1, 4));
    assert_eq!(rows(&log.snapshot()), 5);
}
