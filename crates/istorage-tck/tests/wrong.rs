use std::{sync::Arc, time::Duration};
use clock::{Clock, ManualClock};
use istorage::{Result, StorageDriver, mem::MemDriver};
use istorage_tck::{Conclusion, Scale, Scratch, Subject, trials, wrong::{Defect, Wrong}};

struct Mem { manual: ManualClock, driver: MemDriver }
impl Mem { fn new() -> Mem { let manual = ManualClock::new(1); let driver = MemDriver::new(manual.clock()); Mem { manual, driver } } }
#[async_trait::async_trait]
impl Subject for Mem {
    fn clock(&self) -> Clock { self.manual.clock() }
    fn scale(&self) -> Scale { Scale::Embedded }
    async fn node(&self, _: i64) -> Result<Arc<dyn StorageDriver>> { Ok(Arc::new(self.driver.clone())) }
    async fn spare(&self) -> Result<Arc<dyn StorageDriver>> { Ok(Arc::new(MemDriver::new(self.clock()))) }
    async fn pass(&self, d: Duration) { self.manual.advance(d); }
    fn side_by_side(&self) -> usize { 1 }
}
const ALL: &[Defect] = &[Defect::None, Defect::EndIncluded, Defect::OnePageOnly, Defect::EagerRead, Defect::OneStreamAtATime, Defect::SignedBytes, Defect::KeysJoined, Defect::StaleReads, Defect::StaleLinearizableReads, Defect::EmptyIsAbsent, Defect::UnreadKeysDropped, Defect::SortedBatch, Defect::WritesLost, Defect::EmptyBatchRefused, Defect::LargeBatchRefused, Defect::LargeBatchCut, Defect::UnprocessedDropped, Defect::FirstOfBatchCounts, Defect::OrderIgnored, Defect::OrderedOneByOne, Defect::GetThenPut, Defect::PartialWriteIf, Defect::FirstConflictOnly, Defect::SortedConflicts, Defect::ConflictsEmpty, Defect::SwapInserts, Defect::SwapToSameRefused, Defect::InsertOfSameApplied, Defect::DeleteUnconditional, Defect::DeletedStaysTaken, Defect::PrefixesCompared, Defect::BlindRetry, Defect::LateAnswerRefused, Defect::AtomicPartial, Defect::SupersededFails, Defect::EarlyExpiry, Defect::LateExpiry, Defect::GetSeesExpired, Defect::InsertSeesExpired, Defect::SwapKeepsTtl, Defect::SwapForgetsTtl, Defect::TtlNotTold, Defect::TtlStandsStill, Defect::TtlWraps, Defect::ExpiryByNode, Defect::LimitsOverstated, Defect::LimitsIgnored, Defect::LimitsTooSmall, Defect::CapabilitiesChange, Defect::ServerTimeStandsStill, Defect::DeadlineIgnored, Defect::DroppedCallsLeak, Defect::CloseIgnored, Defect::CloseClosesAll, Defect::ClosedThoughApplied, Defect::CreateOnce, Defect::OpenCreates, Defect::KeyspacesShared, Defect::DropIgnored, Defect::LongNamesRefused, Defect::DriverCloseIgnored, Defect::Panics, Defect::Hangs];
fn main() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let filter = std::env::args().nth(1).unwrap_or_default();
    std::panic::set_hook(Box::new(|_| {}));
    runtime.block_on(async {
      for d in ALL {
        if !format!("{d:?}").contains(&filter) { continue; }
        let scratch = Scratch::create(Arc::new(Wrong::new(Mem::new(), *d))).await.unwrap().bounded(Duration::from_secs(8));
        let report = scratch.run_all(trials(), |_| {}).await;
        for t in &report.trials { if let Conclusion::Failed(w) = &t.conclusion { println!("{d:?} {} {} {:?}", t.name, &w[..w.len().min(150)].replace("\n"," "), t.took); } }
        println!("== {d:?} {} passed {} failed {} ignored {:?}", report.passed(), report.failed(), report.ignored(), report.took);
      }
    });
}
