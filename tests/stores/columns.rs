//! The columns of the SQL stores' tables.

#[test]
fn the_columns_that_a_check_requires_are_those_of_the_migrations() {
    for migration in [
        include_str!("../../stores/postgres/src/sql/migrate_1.sql"),
        include_str!("../../stores/sqlite/src/sql/migrate_1.sql"),
        include_str!("../../stores/mysql/src/sql/migrate_1.sql"),
    ] {
        let migration = migration.replace('`', "\"");
        for (table, required) in [
            ("{table}\" (", idempotent_sql::columns()),
            ("{table}_audit\" (", idempotent_sql::audit_columns()),
        ] {
            let created = migration
                .lines()
                .skip_while(|line| !line.starts_with("CREATE TABLE") || !line.ends_with(table));
            let created = created.take_while(|line| !line.starts_with(')')).skip(1);
            let created = created.map(str::trim).filter(|line| !line.starts_with("--"));
            let created = created.filter_map(|line| line.split_whitespace().next());
            let created = created.filter(|word| !["KEY", "CHECK"].contains(word));
            let created = created.map(|column| column.trim_matches('"'));
            let mut created: Vec<_> = created.map(|column| format!("'{column}'")).collect();
            let mut required: Vec<_> = required.split(", ").collect();
            created.sort_unstable();
            required.sort_unstable();
            assert_eq!(created, required, "{table}");
        }
    }
}
