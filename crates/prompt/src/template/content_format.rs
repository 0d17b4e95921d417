//! Finds out from a template's syntax tree whether it takes a message's content as parts or as one string.
//!
//! The rule is vLLM's (`_detect_content_format` in `vllm/renderers/hf.py`): parts, if some loop runs over a message's
//! `content`, also through a macro's parameter or a variable of that name.

use std::collections::HashSet;

use minijinja::Value;
use minijinja::machinery::ast::{Call, CallArg, Expr, ForLoop, Stmt};
use minijinja::machinery::parse;
use minijinja::syntax::SyntaxConfig;

/// How a template takes a message's content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ContentFormat {
    /// As a list of parts (`openai`).
    Parts,
    /// As one string, media placeholders in it (`string`).
    Text,
}

/// Detects the format; templates that the rule fails on take strings.
pub(super) fn detect(source: &str, syntax: &SyntaxConfig) -> Result<ContentFormat, minijinja::Error> {
    let tree = parse(source, "chat_template", syntax.clone())?;
    let mut found = Found::default();
    found.statement(&tree, None);
    Ok(match found.loops_over_content() {
        Some(true) => ContentFormat::Parts,
        Some(false) | None => ContentFormat::Text,
    })
}

/// A macro's name and parameters.
struct Macro<'t> {
    name: &'t str,
    parameters: Vec<Option<&'t str>>,
}

/// A loop and the macro it stands in, by index.
struct Loop<'t> {
    node: &'t ForLoop<'t>,
    within: Option<usize>,
}

/// What the rule looks at.
#[derive(Default)]
struct Found<'t> {
    assignments: Vec<(&'t Expr<'t>, &'t Expr<'t>)>,
    loops: Vec<Loop<'t>>,
    macros: Vec<Macro<'t>>,
    calls: Vec<&'t Call<'t>>,
}

impl<'t> Found<'t> {
    /// Applies the rule; nothing where vLLM's own code gives up.
    fn loops_over_content(&self) -> Option<bool> {
        let messages = self.message_lists()?;
        let mut items = HashSet::new();
        for each in &self.loops {
            if messages.iter().any(|name| accesses(&each.node.iter, name, None)) {
                items.insert(variable(&each.node.target)?);
            }
        }
        let content = |expr: &Expr<'_>| items.iter().any(|name| accesses(expr, name, Some("content")));
        for each in &self.loops {
            let over = &each.node.iter;
            let name = variable(over);
            let by_parameter = || {
                let within = each.within.and_then(|at| self.macros.get(at));
                within.is_some_and(|within| {
                    name.is_some_and(|name| self.is_given_content(within, name, &content))
                })
            };
            let by_name = each.within.is_none() && name == Some("content");
            if content(over) || by_name || by_parameter() {
                variable(&each.node.target)?;
                return Some(true);
            }
        }
        Some(false)
    }

    /// Lists the variables that hold the messages or some of them.
    fn message_lists(&self) -> Option<Vec<&'t str>> {
        let mut lists = vec!["messages"];
        let mut next = 0;
        while let Some(&list) = lists.get(next) {
            for (target, value) in &self.assignments {
                if accesses(value, list, None) {
                    let name = variable(target)?;
                    if !lists.contains(&name) {
                        lists.push(name);
                    }
                }
            }
            next += 1;
        }
        Some(lists)
    }

    /// Tells whether some call of a macro passes a message's content for the parameter.
    fn is_given_content(
        &self,
        of: &Macro<'_>,
        parameter: &str,
        content: &impl Fn(&Expr<'_>) -> bool,
    ) -> bool {
        let calls = self.calls.iter().filter(|call| variable(&call.expr) == Some(of.name));
        calls.into_iter().any(|call| {
            let positional = call.args.iter().filter_map(|arg| match arg {
                CallArg::Pos(value) => Some(value),
                CallArg::Kwarg(..) | CallArg::PosSplat(_) | CallArg::KwargSplat(_) => None,
            });
            let by_place = positional
                .zip(&of.parameters)
                .any(|(value, name)| *name == Some(parameter) && content(value));
            let by_name = call.args.iter().any(|arg| match arg {
                CallArg::Kwarg(name, value) => *name == parameter && content(value),
                CallArg::Pos(_) | CallArg::PosSplat(_) | CallArg::KwargSplat(_) => false,
            });
            by_place || by_name
        })
    }

    fn body(&mut self, body: &'t [Stmt<'t>], within: Option<usize>) {
        for statement in body {
            self.statement(statement, within);
        }
    }

    fn statement(&mut self, statement: &'t Stmt<'t>, within: Option<usize>) {
        match statement {
            Stmt::Template(node) => self.body(&node.children, within),
            Stmt::EmitExpr(node) => self.expr(&node.expr),
            Stmt::ForLoop(node) => {
                self.loops.push(Loop { node, within });
                self.expr(&node.iter);
                self.exprs(node.filter_expr.as_ref());
                self.body(&node.body, within);
                self.body(&node.else_body, within);
            }
            Stmt::IfCond(node) => {
                self.expr(&node.expr);
                self.body(&node.true_body, within);
                self.body(&node.false_body, within);
            }
            Stmt::WithBlock(node) => {
                self.exprs(node.assignments.iter().map(|(_, value)| value));
                self.body(&node.body, within);
            }
            Stmt::Set(node) => {
                self.assignments.push((&node.target, &node.expr));
                self.expr(&node.expr);
            }
            Stmt::SetBlock(node) => self.body(&node.body, within),
            Stmt::AutoEscape(node) => self.body(&node.body, within),
            Stmt::FilterBlock(node) => self.body(&node.body, within),
            Stmt::Block(node) => self.body(&node.body, within),
            Stmt::Macro(node) => {
                let parameters = node.args.iter().map(variable).collect();
                self.macros.push(Macro { name: node.name, parameters });
                let index = self.macros.len() - 1;
                self.exprs(&node.defaults);
                self.body(&node.body, Some(index));
            }
            Stmt::CallBlock(node) => {
                self.call(&node.call);
                self.body(&node.macro_decl.body, within);
            }
            Stmt::Do(node) => self.call(&node.call),
            Stmt::EmitRaw(_)
            | Stmt::Import(_)
            | Stmt::FromImport(_)
            | Stmt::Extends(_)
            | Stmt::Include(_)
            | Stmt::Continue(_)
            | Stmt::Break(_) => {}
        }
    }

    fn call(&mut self, call: &'t Call<'t>) {
        self.calls.push(call);
        self.expr(&call.expr);
        self.args(&call.args);
    }

    fn args(&mut self, args: &'t [CallArg<'t>]) {
        for arg in args {
            match arg {
                CallArg::Pos(value)
                | CallArg::Kwarg(_, value)
                | CallArg::PosSplat(value)
                | CallArg::KwargSplat(value) => self.expr(value),
            }
        }
    }

    fn exprs(&mut self, exprs: impl IntoIterator<Item = &'t Expr<'t>>) {
        for expr in exprs {
            self.expr(expr);
        }
    }

    fn expr(&mut self, expr: &'t Expr<'t>) {
        match expr {
            Expr::Var(_) | Expr::Const(_) => {}
            Expr::Slice(node) => {
                self.expr(&node.expr);
                self.exprs([&node.start, &node.stop, &node.step].into_iter().flatten());
            }
            Expr::UnaryOp(node) => self.expr(&node.expr),
            Expr::BinOp(node) => self.exprs([&node.left, &node.right]),
            Expr::Compare(node) => {
                self.expr(&node.expr);
                self.exprs(node.ops.iter().map(|op| &op.expr));
            }
            Expr::IfExpr(node) => {
                self.exprs([&node.test_expr, &node.true_expr]);
                self.exprs(node.false_expr.as_ref());
            }
            Expr::Filter(node) => {
                self.exprs(node.expr.as_ref());
                self.args(&node.args);
            }
            Expr::Test(node) => {
                self.expr(&node.expr);
                self.args(&node.args);
            }
            Expr::GetAttr(node) => self.expr(&node.expr),
            Expr::GetItem(node) => self.exprs([&node.expr, &node.subscript_expr]),
            Expr::Call(node) => self.call(node),
            Expr::List(node) => self.exprs(&node.items),
            Expr::Tuple(node) => self.exprs(&node.items),
            Expr::Map(node) => {
                self.exprs(&node.keys);
                self.exprs(&node.values);
            }
        }
    }
}

fn variable<'t>(expr: &Expr<'t>) -> Option<&'t str> {
    if let Expr::Var(node) = expr { Some(node.id) } else { None }
}

/// Tells whether an expression is a variable or its member `key`, maybe sliced, filtered or tested.
fn accesses(expr: &Expr<'_>, name: &str, key: Option<&str>) -> bool {
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "of minijinja's many expressions only these wrap another"
    )]
    let inner = match expr {
        Expr::Filter(node) => node.expr.as_ref(),
        Expr::Test(node) => Some(&node.expr),
        Expr::Slice(node) => Some(&node.expr),
        _ => None,
    };
    if let Some(inner) = inner {
        return accesses(inner, name, key);
    }
    let Some(key) = key else { return variable(expr) == Some(name) };
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "of minijinja's many expressions only these name a member"
    )]
    match expr {
        Expr::GetAttr(node) => variable(&node.expr) == Some(name) && node.name == key,
        Expr::GetItem(node) => {
            let subscript = if let Expr::Const(subscript) = &node.subscript_expr {
                &subscript.value
            } else {
                &Value::UNDEFINED
            };
            variable(&node.expr) == Some(name) && subscript.as_str() == Some(key)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(template: &str, expected: ContentFormat) {
        let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build().unwrap();
        assert_eq!(detect(template, &syntax).unwrap(), expected, "{template}");
    }

    #[test]
    fn follows_vllms_rule() {
        for parts in [
            "{% for m in messages %}{% for c in m.content %}{{ c.text }}{% endfor %}{% endfor %}",
            "{% for m in messages[1:] %}{% for c in m['content'] %}{{ c }}{% endfor %}{% endfor %}",
            "{% set rest = messages[1:] %}{% for m in rest %}{% for c in m['content'] %}{{ c }}{% endfor %}{% endfor %}",
            "{% for m in messages %}{% set content = m.content %}{% for c in content %}{{ c }}{% endfor %}{% endfor %}",
            "{% macro show(x) %}{% for c in x %}{{ c }}{% endfor %}{% endmacro %}\
             {% for m in messages %}{{ show(m.content) }}{% endfor %}",
            "{% macro show(x) %}{% for c in x %}{{ c }}{% endfor %}{% endmacro %}\
             {% for m in messages %}{{ show(x=m.content) }}{% endfor %}",
            "{% for m in messages %}{% for c in m.content | selectattr('type', 'equalto', 'text') %}{% endfor %}{% endfor %}",
        ] {
            check(parts, ContentFormat::Parts);
        }
        for text in [
            "{% for m in messages %}{{ m.content }}{% endfor %}",
            "{% for m in messages %}{% for call in m.tool_calls %}{{ call }}{% endfor %}{% endfor %}",
            "{% macro show(content) %}{% for c in content %}{{ c }}{% endfor %}{% endmacro %}\
             {% for m in messages %}{{ m.content }}{% endfor %}",
            "{{ messages }}",
        ] {
            check(text, ContentFormat::Text);
        }
    }
}
