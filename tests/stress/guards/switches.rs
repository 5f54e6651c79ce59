//! Gives each guard of a source file a switch that removes it at run time.

#![allow(clippy::wildcard_enum_match_arm, reason = "few of the syntax tree's many variants matter")]

use std::{cmp::Reverse, collections::BTreeSet, ops::Range};

use syn::{
    BinOp, Expr, ExprBinary, ExprCall, ExprIf, ExprMethodCall, ExprStruct, ImplItemFn, ItemConst,
    ItemFn, ItemMod, Member, PatGuard, Stmt, UnOp,
    spanned::Spanned,
    visit::{self, Visit},
};

/// The module that reads the switch.
pub(super) const SWITCH: &str = "
#[cfg(test)]
mod switch {
    pub(crate) fn removed(guard: usize) -> bool {
        static REMOVED: std::sync::LazyLock<Option<usize>> =
            std::sync::LazyLock::new(|| std::env::var(\"REMOVED_GUARD\").ok()?.parse().ok());
        *REMOVED == Some(guard)
    }
}";
const REMOVED: &str = "crate::switch::removed";

/// Functions that decide nothing about a record.
const NOT_GUARDS: [&str; 2] = ["fmt", "new"];

/// What decides about a record, and what removing it does.
pub(super) struct Guard {
    pub(super) place: String,
    pub(super) code: String,
    pub(super) removal: &'static str,
}

/// Adds the guards of a file to `guards`, and returns the file with their switches. The number of a
/// guard is its index.
pub(super) fn add_switches(name: &str, text: &str, guards: &mut Vec<Guard>) -> String {
    let file = syn::parse_file(text).unwrap();
    let mut switches =
        Switches { name, text, guards, edits: Vec::new(), conditions: BTreeSet::new() };
    switches.visit_file(&file);
    let mut edits = switches.edits;
    // At one place, what closes comes first, and of that the innermost.
    edits.sort_by_key(|edit| match edit.closes {
        true => (edit.replaced.start, 0, Reverse(edit.number)),
        false => (edit.replaced.start, 1, Reverse(usize::MAX - edit.number)),
    });
    let (mut changed, mut at) = (String::new(), 0);
    for edit in edits {
        changed += &text[at..edit.replaced.start];
        changed += &edit.text;
        at = edit.replaced.end;
    }
    changed + &text[at..]
}

/// Whether a conjunction has a `let`, which must stay one of its parts.
fn binds(condition: &Expr) -> bool {
    match condition {
        Expr::Let(_) => true,
        Expr::Binary(ExprBinary { left, op: BinOp::And(_), right, .. }) => {
            binds(left) || binds(right)
        }
        _ => false,
    }
}

struct Edit {
    replaced: Range<usize>,
    text: String,
    closes: bool,
    number: usize,
}

struct Switches<'a> {
    name: &'a str,
    text: &'a str,
    guards: &'a mut Vec<Guard>,
    edits: Vec<Edit>,
    /// Where the conditions begin and end that have a switch.
    conditions: BTreeSet<(usize, usize)>,
}

impl Switches<'_> {
    /// The call that tells whether a guard is removed.
    fn guard(&mut self, guard: &impl Spanned, removal: &'static str) -> String {
        let span = guard.span();
        let code = self.text[span.byte_range()].split_whitespace().collect::<Vec<_>>().join(" ");
        let place = format!("{}:{}", self.name, span.start().line);
        self.guards.push(Guard { place, code, removal });
        format!("{REMOVED}({})", self.guards.len() - 1)
    }

    fn edit(&mut self, replaced: Range<usize>, text: impl Into<String>, closes: bool) {
        let number = self.edits.len();
        self.edits.push(Edit { replaced, text: text.into(), closes, number });
    }

    fn surround(&mut self, code: &impl Spanned, before: String, after: &str) {
        let Range { start, end } = code.span().byte_range();
        self.edit(start..start, before, false);
        self.edit(end..end, after, true);
    }

    /// A condition that is true or false, whatever it says.
    fn condition(&mut self, condition: &Expr) {
        if self.is_new(condition) && !binds(condition) {
            let holds = self.guard(condition, "true");
            let fails = self.guard(condition, "false");
            self.surround(condition, format!("({holds} || !{fails} && ("), "))");
        }
    }

    /// A part of a conjunction or disjunction, which is left out.
    fn part(&mut self, part: &Expr, operator: &BinOp) {
        match part {
            Expr::Binary(inner) if inner.op == *operator => {}
            Expr::Let(_) => {}
            _ if !self.is_new(part) => {}
            _ if matches!(operator, BinOp::And(_)) => {
                let removed = self.guard(part, "true");
                self.surround(part, format!("({removed} || ("), "))");
            }
            _ => {
                let removed = self.guard(part, "false");
                self.surround(part, format!("(!{removed} && ("), "))");
            }
        }
    }

    fn is_new(&mut self, condition: &Expr) -> bool {
        let Range { start, end } = condition.span().byte_range();
        self.conditions.insert((start, end))
    }

    /// `own.method(others)`, of which `otherwise` says what it becomes.
    fn method(&mut self, call: &ExprMethodCall, others: &str, otherwise: &[(&'static str, &str)]) {
        let whole = call.span().byte_range();
        let (own, arguments) = (call.receiver.span().byte_range(), call.args.span().byte_range());
        let branches = otherwise.iter().map(|(removal, becomes)| {
            format!("if {} {{ {becomes} }} else ", self.guard(call, removal))
        });
        let branches: String = branches.collect();
        let method = &call.method;
        self.edit(whole.start..whole.start, format!("({{ let (own, {others}) = ("), false);
        self.edit(own.end..arguments.start, ", ", true);
        let end = format!("); {branches}{{ own.{method}({others}) }} }})");
        self.edit(arguments.end..whole.end, end, true);
    }
}

impl<'ast> Visit<'ast> for Switches<'_> {
    fn visit_item_mod(&mut self, _: &'ast ItemMod) {}

    fn visit_item_const(&mut self, _: &'ast ItemConst) {}

    fn visit_item_fn(&mut self, function: &'ast ItemFn) {
        if function.sig.constness.is_none() {
            visit::visit_item_fn(self, function);
        }
    }

    fn visit_impl_item_fn(&mut self, function: &'ast ImplItemFn) {
        let name = function.sig.ident.to_string();
        if function.sig.constness.is_none() && !NOT_GUARDS.contains(&&*name) {
            visit::visit_impl_item_fn(self, function);
        }
    }

    fn visit_stmt(&mut self, statement: &'ast Stmt) {
        let acts = match statement {
            Stmt::Expr(Expr::Call(_) | Expr::MethodCall(_) | Expr::Assign(_), Some(_)) => true,
            Stmt::Expr(Expr::Binary(operation), Some(_)) => {
                matches!(operation.op, BinOp::AddAssign(_) | BinOp::SubAssign(_))
            }
            _ => false,
        };
        if acts {
            let removed = self.guard(statement, "nothing");
            self.surround(statement, format!("if !{removed} {{ "), " }");
        }
        visit::visit_stmt(self, statement);
    }

    fn visit_expr_if(&mut self, expression: &'ast ExprIf) {
        self.condition(&expression.cond);
        visit::visit_expr_if(self, expression);
    }

    fn visit_pat(&mut self, pattern: &'ast syn::Pat) {
        // A path in a pattern is of the same type as one in an expression.
        if !matches!(pattern, syn::Pat::Path(_)) {
            visit::visit_pat(self, pattern);
        }
    }

    fn visit_pat_guard(&mut self, pattern: &'ast PatGuard) {
        self.condition(&pattern.guard);
        visit::visit_pat_guard(self, pattern);
    }

    fn visit_arm(&mut self, arm: &'ast syn::Arm) {
        if let Expr::Lit(syn::ExprLit { lit: syn::Lit::Bool(literal), .. }) = &*arm.body {
            let removed = self.guard(&arm.body, if literal.value { "false" } else { "true" });
            self.surround(&arm.body, format!("({removed} ^ "), ")");
        }
        visit::visit_arm(self, arm);
    }

    fn visit_expr_unary(&mut self, expression: &'ast syn::ExprUnary) {
        if matches!(expression.op, UnOp::Not(_)) {
            self.condition(&Expr::Unary(expression.clone()));
            self.is_new(&expression.expr);
        }
        visit::visit_expr_unary(self, expression);
    }

    fn visit_expr_binary(&mut self, expression: &'ast ExprBinary) {
        let ExprBinary { left, op, right, .. } = expression;
        let other = match op {
            BinOp::Le(_) => "<",
            BinOp::Lt(_) => "<=",
            BinOp::Ge(_) => ">",
            BinOp::Gt(_) => ">=",
            _ => "",
        };
        if matches!(op, BinOp::And(_) | BinOp::Or(_)) {
            self.condition(&Expr::Binary(expression.clone()));
            self.part(left, op);
            self.part(right, op);
        } else if matches!(op, BinOp::Eq(_) | BinOp::Ne(_)) || !other.is_empty() {
            self.condition(&Expr::Binary(expression.clone()));
        }
        if !other.is_empty() {
            let removed = self.guard(expression, "the other boundary");
            let (operator, name) = (op.span().byte_range(), &self.text[op.span().byte_range()]);
            self.surround(
                expression,
                "({ let (left, right) = (&(".to_owned(),
                &format!(
                    ")); if {removed} {{ left {other} right }} else {{ left {name} right }} }})"
                ),
            );
            self.edit(operator, "), &(", true);
        }
        visit::visit_expr_binary(self, expression);
    }

    fn visit_expr_method_call(&mut self, call: &'ast ExprMethodCall) {
        let name = call.method.to_string();
        match (name.as_str(), call.args.first()) {
            ("filter" | "is_none_or", Some(Expr::Closure(closure))) => {
                self.condition(&closure.body);
            }
            ("or" | "min", Some(_)) => {
                let becomes = [("the receiver", "own"), ("the argument", "other")];
                self.method(call, "other", &becomes);
            }
            ("saturating_add", Some(_)) => {
                self.method(call, "other", &[("a sum that wraps", "own.wrapping_add(other)")]);
            }
            ("map_or", Some(default)) => {
                let default = &self.text[default.span().byte_range()];
                let removed = self.guard(call, "the default");
                self.surround(call, format!("(if {removed} {{ {default} }} else {{ "), " })");
            }
            (name, _) if name.starts_with("is_") => {
                self.condition(&Expr::MethodCall(call.clone()));
            }
            _ => {}
        }
        visit::visit_expr_method_call(self, call);
    }

    fn visit_expr_call(&mut self, call: &'ast ExprCall) {
        let function = &self.text[call.func.span().byte_range()];
        if ["keep", "Change::Put"].contains(&function) {
            let removed = self.guard(call, "`Change::Keep`");
            let before = format!("(if {removed} {{ Change::Keep }} else {{ ");
            self.surround(call, before, " })");
        }
        visit::visit_expr_call(self, call);
    }

    fn visit_expr_path(&mut self, path: &'ast syn::ExprPath) {
        if &self.text[path.span().byte_range()] == "Change::Remove" {
            let removed = self.guard(path, "`Change::Keep`");
            let before = format!("(if {removed} {{ Change::Keep }} else {{ ");
            self.surround(path, before, " })");
        }
    }

    fn visit_expr_struct(&mut self, expression: &'ast ExprStruct) {
        if let Some(rest) = &expression.rest {
            let rest = &self.text[rest.span().byte_range()];
            for field in &expression.fields {
                let Member::Named(member) = &field.member else { continue };
                let removed = self.guard(field, "the field of the base");
                let before = format!("(if {removed} {{ ({rest}).{member} }} else {{ ");
                if field.colon_token.is_some() {
                    self.surround(&field.expr, before, " })");
                } else {
                    self.surround(field, format!("{member}: {before}"), " })");
                }
            }
        }
        visit::visit_expr_struct(self, expression);
    }
}
