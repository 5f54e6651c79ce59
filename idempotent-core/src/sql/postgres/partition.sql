-- One of the parts that the table is divided into by a hash of the id. (By time would be a trap: a unique key that includes the
-- time lets the same id in twice.)
CREATE TABLE {schema}"{table}_p{part}" PARTITION OF {schema}"{table}"
FOR VALUES WITH (MODULUS {parts}, REMAINDER {part}) {storage};
