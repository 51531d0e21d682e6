//! The subjects of commits: `crate: imperative subject`, in at most 72 characters.

/// The arguments of git that print the checked subjects. Only the last commits are checked: older
/// commits broke the rule, and no commit is changed after others have it. A clone with less history
/// has fewer commits to check.
pub(super) const LOG: [&str; 5] = ["log", "--no-merges", "--max-count", "100", "--format=%h %s"];

const LENGTH_MAX: usize = 72;

/// Returns the violations in a log with a commit in each line: its hash, a space, its subject.
pub(super) fn check(log: &str) -> Vec<String> {
    let subjects = log.lines().filter_map(|line| line.split_once(' '));
    subjects.filter_map(|(hash, subject)| check_subject(hash, subject)).collect()
}

fn check_subject(hash: &str, subject: &str) -> Option<String> {
    let length = subject.chars().count();
    if length > LENGTH_MAX {
        return Some(format!(
            "the subject of commit {hash} has {length} characters, more than {LENGTH_MAX}"
        ));
    }
    let prefix = subject.split_once(": ").map_or("", |(prefix, _)| prefix);
    let is_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-_/, ".contains(c);
    let has_prefix = !prefix.is_empty() && prefix.chars().all(is_name);
    (!has_prefix).then(|| format!("the subject of commit {hash} does not begin with `crate: `"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_subject_names_its_crate() {
        let good = "a1 xtask: check subjects\nb2 sysvvm, bin/vvm: rename a key\n";
        assert_eq!(check(good), [""; 0]);
        let bad = "a1 Check subjects: all\nb2 check subjects\nc3 : x\nd4 Merge: x\n";
        assert_eq!(check(bad).len(), 4);
        assert_eq!(check(""), [""; 0]);
    }

    #[test]
    fn a_subject_is_short() {
        let subject = |length: usize| format!("a1 xtask: {}\n", "\u{e4}".repeat(length - 7));
        assert_eq!(check(&subject(LENGTH_MAX)).len(), 0);
        assert_eq!(check(&subject(LENGTH_MAX + 1)).len(), 1);
    }
}
