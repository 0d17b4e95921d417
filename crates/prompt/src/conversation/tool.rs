//! Tools and calls of tools, dumped as vLLM's typed models dump them: in the schema's order of keys.

use std::borrow::Cow;

use minijinja::Value;

use super::part::value;
use crate::error::Error;
use crate::json::{Json, Kind};

/// Dumps a request's `tools`.
pub(super) fn definitions(tools: Json<'_>) -> Result<Value, Error> {
    if tools.items().next().is_none() {
        return Err(Error::refused("tools", "must not be an empty array"));
    }
    let tools =
        tools.items().enumerate().map(|(at, tool)| definition(tool, at)).collect::<Result<Vec<_>, _>>()?;
    Ok(Value::from_iter(tools))
}

fn definition(tool: Json<'_>, at: usize) -> Result<Value, Error> {
    let path = |member: &str| format!("tools[{at}]{member}");
    if tool.kind() != Kind::Object {
        return Err(Error::wrong(path(""), "an object"));
    }
    let given = tool.given("function").ok_or_else(|| Error::Missing { param: path(".function") })?;
    if given.kind() != Kind::Object {
        return Err(Error::wrong(path(".function"), "an object"));
    }
    let name = given.get("name").and_then(Json::as_str);
    let name = name.ok_or_else(|| Error::wrong(path(".function.name"), "a string"))?;
    let defer = tool.given("defer_loading").and_then(Json::as_bool);
    let or_none = |member: &str| given.get(member).map_or_else(|| Value::from(()), value);
    let mut function = vec![
        ("name", Value::from(&*name)),
        ("description", or_none("description")),
        ("parameters", or_none("parameters")),
    ];
    function.extend(given.given("strict").map(|strict| ("strict", value(strict))));
    let deferred = given.given("defer_loading").map(value).or_else(|| defer.map(Value::from));
    function.extend(deferred.map(|deferred| ("defer_loading", deferred)));
    let mut members = vec![("type", Value::from("function")), ("function", Value::from_pairs(function))];
    members.extend(defer.map(|defer| ("defer_loading", Value::from(defer))));
    Ok(Value::from_pairs(members))
}

/// Dumps a message's `tool_calls`, their arguments parsed.
pub(super) fn calls(calls: Json<'_>, at: usize) -> Result<Value, Error> {
    let calls = calls.items().map(|item| call(item, at)).collect::<Result<Vec<_>, _>>()?;
    Ok(Value::from_iter(calls))
}

fn call(call: Json<'_>, at: usize) -> Result<Value, Error> {
    let path = || format!("messages[{at}].tool_calls");
    let function = call.given("function").filter(|function| function.kind() == Kind::Object);
    let is_function =
        call.get("type").is_none_or(|name| name.as_str().is_some_and(|name| name == "function"));
    let (Some(function), true) = (function, is_function) else {
        return Err(Error::refused(path(), "may only hold calls of type `function`"));
    };
    let arguments = arguments(function.get("arguments"), &path)?;
    let dumped = ordered(function, ["arguments", "name"], |name, member| {
        if name == "arguments" { arguments.clone() } else { value(member) }
    });
    let with_arguments = if function.get("arguments").is_some() {
        Value::from_pairs(dumped)
    } else {
        Value::from_pairs(dumped.into_iter().chain([(Cow::Borrowed("arguments"), arguments.clone())]))
    };
    Ok(Value::from_pairs(ordered(call, ["id", "function"], |name, member| {
        if name == "function" { with_arguments.clone() } else { value(member) }
    })))
}

/// Lists an object's members, the schema's ones first; what follows them keeps the request's order.
fn ordered<'a>(
    object: Json<'a>,
    first: [&'static str; 2],
    dump: impl Fn(&str, Json<'a>) -> Value,
) -> Vec<(Cow<'a, str>, Value)> {
    let schema = first.iter().filter_map(|name| Some((Cow::Borrowed(*name), object.get(name)?)));
    let function_type = first
        .contains(&"id")
        .then(|| object.get("type"))
        .flatten()
        .map(|value| (Cow::Borrowed("type"), value));
    let typed = function_type.is_some();
    let extras = object.members().filter(|(name, _)| !(first.contains(&&**name) || typed && name == "type"));
    schema
        .chain(function_type)
        .chain(extras)
        .map(|(name, member)| {
            let dumped = dump(&name, member);
            (name, dumped)
        })
        .collect()
}

/// Parses a call's arguments: an object as it is; what is no object, or no JSON, becomes an empty one.
fn arguments(given: Option<Json<'_>>, path: &impl Fn() -> String) -> Result<Value, Error> {
    let empty = || Value::from_pairs(Vec::<(Value, Value)>::new());
    let Some(given) = given.filter(|given| !given.is_null()) else { return Ok(empty()) };
    let Some(text) = given.as_str() else {
        return Err(Error::wrong(format!("{}[].function.arguments", path()), "a string"));
    };
    let document = crate::json::parse(&bytes::Bytes::from(text.into_owned())).ok();
    Ok(match document {
        Some(document) if document.root().kind() == Kind::Object => value(document.root()),
        Some(_) | None => empty(),
    })
}
