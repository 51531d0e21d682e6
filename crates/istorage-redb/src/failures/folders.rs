//! Folders in which the user has too few rights.

use super::*;

/// Both ways to make the file say what the operation on the folder lacks, and so does a later
/// opening.
#[test]
fn a_folder_without_rights_is_reported_with_advice_for_the_folder() {
    for (denied, advice) in [
        (Disk::MakesNoFolder, "the right to write in the folder above it"),
        (Disk::SyncsNoFolder, "the rights to read and to write in this folder"),
    ] {
        let (folder, switch) = (tempfile::tempdir().unwrap(), Switch::default());
        let file = |name| {
            let disk = Arc::new(FailingDisk(switch.clone()));
            let config = RedbConfig::new(folder.path().join(name));
            StorageFile::new(config, disk, LogSizes::default())
        };
        let is_told = |refused: Result<()>| {
            let error = refused.unwrap_err().to_string();
            assert!(error.contains(advice), "{denied:?}: {error}");
        };
        let (node, restored) = (file("node.redb"), file("restored.redb"));
        switch.set(denied);
        is_told(restored.make_whole(1, |_| Ok(()), |_, ()| Ok(())));
        is_told(node.open(2).map(drop));
        switch.set(Disk::Works);
        drop(node.open(3).unwrap());
        switch.set(denied);
        is_told(node.open(4).map(drop));
    }
}
