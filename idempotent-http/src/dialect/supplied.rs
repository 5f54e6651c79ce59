//! The supplied dialects. `tests/http/dialects` has a row for each line of their specifications.

use std::collections::HashMap;

use super::{Dialect, Endpoint, Marker, ProblemForm, ProblemShape, Token};
use crate::{header_names, problem::ProblemKind, recording::RecordRule};

const IDEMPOTENCY_KEY: Token = Token::from_static(header_names::KEY);
const TRUE: Token = Token::from_static("true");
/// The marker of Stripe and of the Agentic Commerce Protocol.
const IDEMPOTENT_REPLAYED: Marker =
    Marker { name: Token::from_static("idempotent-replayed"), value: TRUE };

impl Dialect {
    /// The default: draft-ietf-httpapi-idempotency-key-header-07, and for what it leaves open, the
    /// headers and problems of this project.
    #[must_use]
    pub fn ietf() -> Self {
        Self {
            name: "ietf".into(),
            key_header: IDEMPOTENCY_KEY,
            replay_marker: Marker { name: Token::from_static(header_names::REPLAYED), value: TRUE },
            echoes_key: false,
            expiry_header: None,
            endpoint: Endpoint::Pattern,
            required_methods: Vec::new(),
            optional_methods: Vec::new(),
            record: RecordRule::Final,
            problem_shape: ProblemShape::Problem,
            problems: HashMap::new(),
        }
    }

    /// Version 1 of Stripe's API (<https://docs.stripe.com/api/idempotent_requests>): its marker,
    /// its errors, 400 for a reused key, and recorded responses of every status.
    ///
    /// A problem has the members of RFC 9457 as well as `error`. `DELETE` needs no key.
    #[must_use]
    pub fn stripe() -> Self {
        let mut dialect = Self {
            name: "stripe".into(),
            replay_marker: IDEMPOTENT_REPLAYED,
            optional_methods: vec!["DELETE".into()],
            record: RecordRule::All,
            problem_shape: ProblemShape::WithError,
            ..Self::ietf()
        };
        for kind in ProblemKind::ALL {
            let (error_type, code) = kind.stripe_error();
            let form = dialect.problem_mut(kind);
            form.error_type = Some(error_type.into());
            form.code = Some(code.into());
        }
        dialect.problem_mut(ProblemKind::KeyReused).status = Some(400);
        dialect
    }

    /// The Agentic Commerce Protocol (the RFC "Agentic Checkout", §3.1 and §6, with SEP 120): its
    /// marker, its flat errors and codes, the key echoed, required for `POST`, and scoped to the
    /// path of the endpoint.
    ///
    /// The protocol compares bodies as JSON, and no headers (§6.2): write `fingerprint = "json",
    /// content_type = "ignored"` in the attribute.
    #[must_use]
    pub fn acp() -> Self {
        let mut dialect = Self {
            name: "acp".into(),
            replay_marker: IDEMPOTENT_REPLAYED,
            echoes_key: true,
            endpoint: Endpoint::Path,
            required_methods: vec!["POST".into()],
            problem_shape: ProblemShape::Flat,
            ..Self::ietf()
        };
        for kind in ProblemKind::ALL {
            let error_type = match kind.status() {
                503 => "service_unavailable",
                500.. => "processing_error",
                _ => "invalid_request",
            };
            dialect.problem_mut(kind).error_type = Some(error_type.into());
        }
        for (kind, code) in [
            (ProblemKind::KeyMissing, "idempotency_key_required"),
            (ProblemKind::KeyReused, "idempotency_conflict"),
            (ProblemKind::InFlight, "idempotency_in_flight"),
        ] {
            let form = ProblemForm { code: Some(code.into()), ..dialect.problem(kind) };
            *dialect.problem_mut(kind) = form;
        }
        dialect
    }
}

impl Default for Dialect {
    fn default() -> Self {
        Self::ietf()
    }
}
