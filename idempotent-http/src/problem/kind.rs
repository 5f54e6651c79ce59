//! The kinds of problems, and the facts about each.

use idempotent_core::StoreError;

/// What all problems of one kind have in common.
struct Facts {
    status: u16,
    code: &'static str,
    /// Whether the same request may be sent again with the same key.
    retryable: bool,
    title: &'static str,
    /// What the client can do.
    advice: &'static str,
}

const NOT_RUN: &str = "The request was not run. Send it again with the same key.";
const PARTLY_DONE: &str =
    "Part of the operation may have been done. If you retry, use the same key.";

/// Defines the kinds from a table.
macro_rules! kinds {
    ($(
        $(#[$doc:meta])*
        $name:ident = $status:literal, $code:literal, retryable: $retryable:literal,
        $title:literal,
        $advice:expr;
    )*) => {
        /// A kind of problem that the guard reports. The description of each kind begins with its
        /// usual status.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum ProblemKind {
            $($(#[$doc])* $name,)*
        }

        impl ProblemKind {
            /// All kinds, in the order of their usual statuses.
            pub const ALL: [Self; [$($code),*].len()] = [$(Self::$name),*];

            const fn facts(self) -> Facts {
                match self {
                    $(Self::$name => Facts {
                        status: $status,
                        code: $code,
                        retryable: $retryable,
                        title: $title,
                        advice: $advice,
                    },)*
                }
            }
        }
    };
}

kinds! {
    /// 400: the operation requires a key, and the request has none.
    KeyMissing = 400, "key_missing", retryable: false,
        "An idempotency key is required",
        "Send a unique idempotency key, such as a UUID, with each operation.";
    /// 400: the request has more than one key, or its key is malformed.
    KeyMalformed = 400, "key_malformed", retryable: false,
        "The idempotency key is malformed",
        "Send a UUID as the idempotency key.";
    /// 400: the request has a key, but the operation does not support keys. Only
    /// the middleware that refuses such keys reports it.
    KeyUnsupported = 400, "key_unsupported", retryable: false,
        "This operation does not support idempotency keys",
        "Send the request without an idempotency key, and do not rely on retrying it.";
    /// 401: the request has no principal that the key could belong to.
    ScopeMissing = 401, "scope_missing", retryable: false,
        "No authenticated principal for this idempotency key",
        "Authenticate the request: each idempotency key belongs to a principal.";
    /// 404: the principal has no record of this key, or of any key in that operation. Only
    /// the resource at which a key is looked up reports it.
    KeyUnknown = 404, "key_unknown", retryable: true,
        "This idempotency key is unknown",
        "No request with this key is recorded: none was accepted, its outcome was not recorded, or \
         its record has expired.";
    /// 405: the handler is not guarded for this method.
    MethodNotAllowed = 405, "method_not_allowed", retryable: false,
        "The method is not allowed for this resource",
        "Use one of the methods in the Allow header.";
    /// 409: another request with this key is still in progress.
    InFlight = 409, "in_flight", retryable: true,
        "A request with this idempotency key is still in progress",
        "Wait for its response, or send this request again later with the same key.";
    /// 409: an attempt with this key was abandoned, its outcome is unknown, and the key is held. Or
    /// this request ran, and the store lost its record while a different request took the key.
    OutcomeUnknown = 409, "outcome_unknown", retryable: false,
        "The outcome of a request with this idempotency key is unknown",
        "Check what that request did. Sending this request again will not run it.";
    /// 413: the body is larger than the limit.
    BodyTooLarge = 413, "body_too_large", retryable: false,
        "The request body is too large",
        "Send a smaller body.";
    /// 422: the key was first used for a different request. The handler did not run.
    KeyReused = 422, "key_reused", retryable: false,
        "The idempotency key was used for a different request",
        "This request was not run. The earlier request with this key may have been carried out: \
         send it again unchanged to get its response, and do not use a new key before you know.";
    /// 500: the handler panicked, the body of its response failed, its transaction was not
    /// committed, or the store lost its record while it ran. Not retryable if the key is held.
    HandlerFailed = 500, "handler_failed", retryable: true,
        "The handler failed unexpectedly",
        PARTLY_DONE;
    /// 500: the record of this key cannot be read. The operation may have been done, so its handler
    /// does not run again and no response is replayed.
    RecordUnreadable = 500, "record_unreadable", retryable: false,
        "The record of this idempotency key cannot be read",
        "Check what the earlier request did. The operation will not run again.";
    /// 500: the application is misconfigured, or its store refused the claim with a permanent
    /// error. The handler did not run. The reason is logged.
    Misconfigured = 500, "misconfigured", retryable: false,
        "The server is misconfigured",
        "The request was not run. The reason is in the server's log.";
    /// 503: the handler did not respond within its time limit, and the next request runs it again.
    /// The status is 500 if the key is held instead.
    HandlerTimedOut = 503, "handler_timed_out", retryable: true,
        "The handler did not respond within its time limit",
        PARTLY_DONE;
    /// 503: too many operations are in flight. 429: too many operations of this principal are in
    /// flight, or the principal has used up its share of the store. The handler did not run.
    Overloaded = 503, "overloaded", retryable: true,
        "Too many operations are in progress",
        NOT_RUN;
    /// 503: the store cannot be reached. The handler did not run, or its transaction could not
    /// begin or commit. The status is 500 if the handler ran and the key is held.
    StoreUnavailable = 503, "store_unavailable", retryable: true,
        "The idempotency store is unavailable",
        NOT_RUN;
    /// 503: the server is shutting down. The handler did not run.
    ShuttingDown = 503, "shutting_down", retryable: true,
        "The server is shutting down",
        NOT_RUN;
}

impl ProblemKind {
    /// Returns the usual status of the response.
    ///
    /// A [`Problem`](super::Problem) may have another status:
    /// [`HandlerTimedOut`](Self::HandlerTimedOut) and [`StoreUnavailable`](Self::StoreUnavailable)
    /// have 500 if the key is held, and [`Overloaded`](Self::Overloaded) has 429 if a limit of the
    /// principal was reached.
    #[must_use]
    pub const fn status(self) -> u16 {
        self.facts().status
    }

    /// Returns the code, such as `in_flight`, by which clients recognize the kind. Codes never
    /// change.
    #[must_use]
    pub const fn code(self) -> &'static str {
        self.facts().code
    }

    /// Returns the title, which is the same for each problem of this kind.
    #[must_use]
    pub const fn title(self) -> &'static str {
        self.facts().title
    }

    /// Returns whether the client may usually send the same request again with the same key. See
    /// [`Problem::is_retryable`](super::Problem::is_retryable) for one request.
    #[must_use]
    pub const fn retryable(self) -> bool {
        self.facts().retryable
    }

    /// Returns what the client can do, where that does not depend on the request.
    #[must_use]
    pub const fn advice(self) -> &'static str {
        self.facts().advice
    }

    /// Returns every status of this kind, the usual one first. Each has the condition under which
    /// the response has that status, if the kind has several or one of two meanings, and whether
    /// the same request may be sent again.
    #[must_use]
    pub fn statuses(self) -> Vec<(u16, Option<&'static str>, bool)> {
        let usual = self.status();
        let held = "the operation must not be repeated, so the key is blocked until an operator \
                    resolves it";
        let held = (500, Some(held), false);
        if matches!(self, Self::HandlerTimedOut | Self::HandlerFailed) {
            let again = "the next request with this key will run the operation again";
            return vec![(usual, Some(again), true), held];
        }
        if self == Self::StoreUnavailable {
            let again =
                "the next request with this key will run the operation, or find its outcome";
            return vec![(usual, Some(again), true), held];
        }
        if self == Self::Overloaded {
            return vec![
                (usual, Some("the server has too many operations in progress"), true),
                (
                    429,
                    Some(
                        "the principal has too many operations in progress, or too many stored \
                         responses",
                    ),
                    true,
                ),
            ];
        }
        vec![(usual, None, self.retryable())]
    }

    /// Returns the kind of problem to report for an error of the store.
    #[must_use]
    pub fn of_store(error: &StoreError) -> Self {
        if error.is_transient() {
            Self::StoreUnavailable
        } else if error.is_unreadable() {
            Self::RecordUnreadable
        } else {
            Self::Misconfigured
        }
    }

    /// Returns the kind with this code.
    #[must_use]
    pub fn of_code(code: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.code() == code)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn each_kind_has_a_code_of_its_own() {
        let codes: HashSet<_> = ProblemKind::ALL.iter().map(|kind| kind.code()).collect();
        assert_eq!(codes.len(), ProblemKind::ALL.len());
    }

    #[test]
    fn titles_are_phrases_and_advice_is_sentences() {
        for kind in ProblemKind::ALL {
            assert!(!kind.title().ends_with('.'), "{kind:?}");
            assert!(kind.advice().ends_with('.'), "{kind:?}");
        }
    }
}
