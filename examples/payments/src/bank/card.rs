//! Test cards.

use std::time::Duration;

/// The longest delay of a slow card, in milliseconds.
const MAX_DELAY_MILLIS: u64 = 60_000;

/// A test card, which decides how the bank behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Card {
    /// The charge succeeds.
    Visa,
    /// The bank declines.
    ChargeDeclined,
    /// The charge succeeds, but the bank's response is delayed.
    Slow(Duration),
    /// The bank's card processor cannot be reached.
    ProcessorDown,
    /// The charge succeeds, and then the payments server panics.
    Crash,
}

impl Card {
    /// Parses the name of a payment method; the error is a message for the client.
    pub(crate) fn parse(name: &str) -> Result<Self, String> {
        match name.strip_prefix("pm_card_") {
            Some("visa") => Ok(Self::Visa),
            Some("chargeDeclined") => Ok(Self::ChargeDeclined),
            Some("processorDown") => Ok(Self::ProcessorDown),
            Some("crash") => Ok(Self::Crash),
            Some(other) => match other.strip_prefix("slow_").map(str::parse) {
                Some(Ok(millis)) if millis <= MAX_DELAY_MILLIS => {
                    Ok(Self::Slow(Duration::from_millis(millis)))
                }
                Some(_) => Err(format!(
                    "A slow card is `pm_card_slow_MS` with at most {MAX_DELAY_MILLIS} ms."
                )),
                None => Err(format!("No such PaymentMethod: '{name}'")),
            },
            None => Err(format!("No such PaymentMethod: '{name}'")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_card_is_parsed_from_its_name() {
        assert_eq!(Card::parse("pm_card_visa"), Ok(Card::Visa));
        assert_eq!(Card::parse("pm_card_slow_1500"), Ok(Card::Slow(Duration::from_millis(1500))));
        for name in [
            "",
            "visa",
            "pm_card_",
            "pm_card_slow_",
            "pm_card_slow_-1",
            "pm_card_slow_60001",
            "pm_card_slow_1e3",
        ] {
            assert!(Card::parse(name).is_err(), "{name}");
        }
    }
}
