-- ?1 the refund's id, ?2 its key, ?3 the payment, ?4 its owner, ?5 the amount, or NULL for the
-- rest. Returns the new row, or the row of an earlier attempt at the same refund, or no row if the
-- refund is refused.
INSERT INTO refunds (id, refund_key, payment_intent, amount, status)
SELECT ?1, ?2, paid.id, coalesce(?5, paid.amount - paid.refunded), 'pending'
FROM (
    SELECT p.id, p.amount,
           (SELECT coalesce(sum(r.amount), 0) FROM refunds r
            WHERE r.payment_intent = p.id AND r.refund_key <> ?2) AS refunded
    FROM payment_intents p
    WHERE p.id = ?3 AND p.owner = ?4 AND p.status = 'succeeded'
) AS paid
WHERE coalesce(?5, 1) <= paid.amount - paid.refunded
ON CONFLICT (refund_key) DO UPDATE SET attempts = attempts + 1
    WHERE payment_intent = excluded.payment_intent AND (?5 IS NULL OR amount = ?5)
RETURNING id, amount
