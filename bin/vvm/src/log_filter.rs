//! The filter of the log: a level, and levels of targets.

use tracing_subscriber::filter::{LevelFilter, Targets};

/// Makes the filter of a text such as `info` or `warn,vvm=debug`.
///
/// `Targets` itself reads more texts than it can filter by. It takes `vvm[command]`, which filters
/// by spans elsewhere, and a misspelt level such as `inof`, as targets that nothing has, and an
/// empty part as the level `error`. Such a filter would hide lines without a word, so this function
/// refuses or ignores these parts.
pub(crate) fn log_filter(text: &str) -> Result<Targets, String> {
    let mut filter = Targets::new();
    let mut parts = text.split(',').map(str::trim).filter(|part| !part.is_empty()).peekable();
    if parts.peek().is_none() {
        return Err("it is empty".to_owned());
    }
    for part in parts {
        filter = match part.split_once('=') {
            Some((target, level)) => filter.with_target(named(target)?, level_of(level)?),
            None => match level_of(part) {
                Ok(level) => filter.with_default(level),
                Err(why) => {
                    let target = named(part)?;
                    return Err(format!("{why}; for a target write its level: `{target}=debug`"));
                }
            },
        };
    }
    Ok(filter)
}

fn level_of(text: &str) -> Result<LevelFilter, String> {
    let level = if text.is_empty() { None } else { text.parse().ok() };
    level.ok_or_else(|| {
        format!("`{text}` is not one of the levels off, error, warn, info, debug and trace")
    })
}

fn named(target: &str) -> Result<&str, String> {
    let is_of_a_name = |c: char| c.is_ascii_alphanumeric() || "_-:.".contains(c);
    if !target.is_empty() && target.chars().all(is_of_a_name) {
        return Ok(target);
    }
    Err(format!("`{target}` is not the name of a target, such as `vvm` or `vvm::leading`"))
}

#[cfg(test)]
mod tests {
    use tracing_subscriber::filter::{LevelFilter, Targets};

    use super::log_filter;

    #[test]
    fn a_filter_has_a_level_and_levels_of_targets() {
        let warn = || Targets::new().with_default(LevelFilter::WARN);
        let debug = warn().with_target("vvm", LevelFilter::DEBUG);
        for (text, filter) in [
            ("warn", warn()),
            ("WARN,", warn()),
            ("warn,vvm=debug", debug.clone()),
            (" vvm=debug , warn ,", debug),
            ("vvm::leading=trace", Targets::new().with_target("vvm::leading", LevelFilter::TRACE)),
        ] {
            assert_eq!(log_filter(text).unwrap(), filter, "{text}");
        }
    }

    /// The crate that filters accepted these texts, and the log then had fewer lines than before.
    #[test]
    fn a_filter_that_would_hide_lines_silently_is_refused() {
        for text in [
            "",
            " , ",
            "vvm=",
            "=debug",
            "a=b=c",
            "vvm=loud",
            "[command]=debug",
            "warn,vvm[command]=debug",
            "vvm[{partition}]=debug",
            "warn vvm=debug",
            // A misspelt level was a target, and the node logged nothing.
            "inof",
            "warn,vvm",
        ] {
            assert!(log_filter(text).is_err(), "{text}");
        }
        let why = "`inof` is not one of the levels off, error, warn, info, debug and trace; for a \
                   target write its level: `inof=debug`";
        assert_eq!(log_filter("inof").unwrap_err(), why);
    }
}
