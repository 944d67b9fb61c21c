//! StreamContext
use crate::query::{EpochProgress, Live};
use datafusion::common::Result;
use datafusion::dataframe::DataFrame;
use datafusion::prelude::SessionContext;

/// A DataFusion session that knows streams.
#[derive(Debug, Clone)]
pub struct StreamContext {}

impl StreamContext {
    /// A new session.
    pub fn new() -> Result<Self> { unimplemented!() }
    /// Installs Tidegate into a session.
    pub fn over(_session: SessionContext) -> Result<Self> { unimplemented!() }
    /// The DataFusion session below.
    pub fn session(&self) -> &SessionContext { unimplemented!() }
    /// Plans (and, for statements that define or change something, runs) one statement.
    pub async fn sql(&self, _sql: &str) -> Result<DataFrame> { unimplemented!() }
    /// Reads all that has arrived, in epochs, into a streaming table.
    pub async fn refresh(&self, _name: &str) -> Result<Vec<EpochProgress>> { unimplemented!() }
    /// Figures of the query that is running now.
    pub fn live(&self) -> tokio::sync::watch::Receiver<Live> { unimplemented!() }
    /// Names of the streaming tables, sorted.
    pub fn streaming_tables(&self) -> Vec<String> { unimplemented!() }
}
