//! Which traces are recorded, as `OTEL_TRACES_SAMPLER` says. It is decided once, with the request.

use talaria_turns::{TraceContext, TraceId};

/// A sampler of the OpenTelemetry specification.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Sampler {
    /// Whether a trace that a caller began is recorded if and only if the caller records it.
    pub(crate) follows_caller: bool,
    /// The part of the others that is recorded, from 0 to 1.
    pub(crate) ratio: f64,
}

impl Default for Sampler {
    fn default() -> Self {
        Self { follows_caller: true, ratio: 1.0 }
    }
}

// === impl Sampler ===

impl Sampler {
    /// Parses the values of `OTEL_TRACES_SAMPLER` and `OTEL_TRACES_SAMPLER_ARG`.
    pub(crate) fn parse(name: &str, argument: Option<&str>) -> Result<Self, &'static str> {
        let (follows_caller, rule) = match name.strip_prefix("parentbased_") {
            Some(rule) => (true, rule),
            None => (false, name),
        };
        let ratio = match rule {
            "always_on" => 1.0,
            "always_off" => 0.0,
            "traceidratio" => match argument.map(|argument| argument.trim().parse::<f64>()) {
                None => 1.0,
                Some(Ok(ratio)) if (0.0..=1.0).contains(&ratio) => ratio,
                Some(_) => return Err("the argument of the sampler is a number from 0 to 1"),
            },
            _ => {
                return Err(
                    "the samplers are always_on, always_off and traceidratio, each also with parentbased_ before it",
                );
            }
        };
        Ok(Self { follows_caller, ratio })
    }

    /// The place of a new span: a child of the caller's, or the first of a trace.
    pub(crate) fn sample(&self, caller: Option<&TraceContext>) -> TraceContext {
        match caller {
            Some(caller) => {
                let sampled = if self.follows_caller { caller.sampled } else { self.takes(caller.trace) };
                TraceContext { is_parent_remote: true, sampled, ..caller.child() }
            }
            None => {
                let root = TraceContext::root(false);
                TraceContext { sampled: self.takes(root.trace), ..root }
            }
        }
    }

    /// Decides by the id, so that every participant with this ratio decides alike.
    fn takes(&self, trace: TraceId) -> bool {
        let [.., a, b, c, d, e, f, g, h] = trace.to_bytes();
        let random = u64::from_be_bytes([a, b, c, d, e, f, g, h]) >> 1;
        self.ratio >= 1.0 || (random as f64) < self.ratio * (1_u64 << 63) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_names_are_those_of_the_specification() {
        let sampler = |follows_caller, ratio| Ok(Sampler { follows_caller, ratio });
        assert_eq!(Sampler::parse("always_on", None), sampler(false, 1.0));
        assert_eq!(Sampler::parse("always_off", None), sampler(false, 0.0));
        assert_eq!(Sampler::parse("traceidratio", Some("0.25")), sampler(false, 0.25));
        assert_eq!(Sampler::parse("parentbased_always_on", None), Ok(Sampler::default()));
        assert_eq!(Sampler::parse("parentbased_traceidratio", None), sampler(true, 1.0));
        for (name, argument) in
            [("jaeger_remote", None), ("", None), ("traceidratio", Some("2")), ("traceidratio", Some("NaN"))]
        {
            assert!(Sampler::parse(name, argument).is_err(), "{name} {argument:?}");
        }
    }

    #[test]
    fn a_callers_decision_counts_if_the_sampler_follows_it() {
        let [on, off] = [true, false].map(TraceContext::root);
        let follows = Sampler { follows_caller: true, ratio: 0.0 };
        assert!(follows.sample(Some(&on)).sampled && !follows.sample(Some(&off)).sampled);
        assert!(!follows.sample(None).sampled);
        let ignores = Sampler { follows_caller: false, ratio: 1.0 };
        assert!(ignores.sample(Some(&off)).sampled && ignores.sample(None).sampled);
        let child = ignores.sample(Some(&on));
        assert_eq!((child.trace, child.parent, child.is_parent_remote), (on.trace, Some(on.span), true));
    }

    #[test]
    fn a_ratio_takes_about_that_part() {
        let sampler = Sampler { follows_caller: true, ratio: 0.25 };
        let taken = (0..10_000).filter(|_| sampler.sample(None).sampled).count();
        assert!((2_200..2_800).contains(&taken), "{taken}");
    }
}
