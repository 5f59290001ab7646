//! Scripts, run by Lua 5.1.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use mlua::{Function, Lua, LuaOptions, LuaString, MultiValue, Result, StdLib, Table, Value};

use super::keyspace::Keyspace;
use super::pack;
use super::reply::Reply;

/// A change of the text of scripts: a bug, to test that the simulator finds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScriptPatch {
    /// A part of the text of some script.
    pub from: &'static str,
    /// What stands there instead.
    pub to: &'static str,
}

/// Lua with the functions that Redis adds.
#[derive(Debug)]
pub(crate) struct Interpreter {
    lua: Lua,
    context: Rc<RefCell<ScriptContext>>,
    /// By their text, which may be patched.
    functions: HashMap<Vec<u8>, Function>,
    patches: Vec<ScriptPatch>,
}

/// What the running script works on.
#[derive(Debug, Default)]
struct ScriptContext {
    keyspace: Keyspace,
    /// The error of the server that ended the script.
    raised: Option<String>,
}

impl Interpreter {
    /// Creates one that changes scripts by patches.
    pub(crate) fn new(patches: &[ScriptPatch]) -> Self {
        let libraries = StdLib::TABLE | StdLib::STRING | StdLib::MATH;
        let made = Lua::new_with(libraries, LuaOptions::default()).and_then(|lua| {
            let context = Rc::default();
            set_up(&lua, &context)?;
            Ok(Self {
                lua,
                context,
                functions: HashMap::new(),
                patches: patches.to_vec(),
            })
        });
        made.expect("Lua starts")
    }

    /// Returns whether a script has the text that each patch replaces.
    pub(crate) fn patches_apply(&self) -> bool {
        let texts = || self.functions.keys();
        let has =
            |text: &Vec<u8>, part: &str| text.windows(part.len()).any(|it| it == part.as_bytes());
        self.patches
            .iter()
            .all(|patch| texts().any(|text| has(text, patch.from)))
    }

    /// Compiles a script. Returns its error if it cannot be compiled.
    pub(crate) fn compile(&mut self, text: &[u8]) -> std::result::Result<(), String> {
        if self.functions.contains_key(text) {
            return Ok(());
        }
        let mut patched = String::from_utf8_lossy(text).into_owned();
        for patch in &self.patches {
            patched = patched.replace(patch.from, patch.to);
        }
        let chunk = self.lua.load(&*patched).set_name("@user_script");
        let function = chunk.into_function();
        let function = function.map_err(|cause| format!("ERR Error compiling script {cause}"))?;
        self.functions.insert(text.to_vec(), function);
        Ok(())
    }

    /// Runs a script that was compiled. Returns its reply.
    pub(crate) fn run(
        &mut self,
        text: &[u8],
        keyspace: &mut Keyspace,
        keys: &[Vec<u8>],
        args: &[Vec<u8>],
    ) -> Reply {
        {
            let mut context = self.context.borrow_mut();
            context.keyspace = std::mem::take(keyspace);
            context.keyspace.is_dirty = false;
            context.raised = None;
        }
        let outcome = self.call(text, keys, args);
        let mut context = self.context.borrow_mut();
        *keyspace = std::mem::take(&mut context.keyspace);
        match outcome {
            Ok(reply) => reply,
            Err(cause) => {
                // As Redis: an error of a command keeps its code.
                let text = context.raised.take();
                Reply::Error(text.unwrap_or_else(|| {
                    let cause = cause.to_string().replace(['\r', '\n'], " ");
                    format!("ERR {cause} script: simulated")
                }))
            }
        }
    }

    fn call(&self, text: &[u8], keys: &[Vec<u8>], args: &[Vec<u8>]) -> Result<Reply> {
        let Some(function) = self.functions.get(text) else {
            return Err(mlua::Error::runtime("the script is not compiled"));
        };
        let globals = self.lua.globals();
        let list = |texts: &[Vec<u8>]| {
            let texts = texts.iter().map(|text| self.lua.create_string(text));
            self.lua
                .create_sequence_from(texts.collect::<Result<Vec<_>>>()?)
        };
        globals.raw_set("KEYS", list(keys)?)?;
        globals.raw_set("ARGV", list(args)?)?;
        reply_of(function.call::<Value>(())?)
    }
}

/// Adds the functions of Redis, and forbids other global variables, as Redis does.
fn set_up(lua: &Lua, context: &Rc<RefCell<ScriptContext>>) -> Result<()> {
    let globals = lua.globals();
    globals.set("struct", pack::library(lua)?)?;
    let redis = lua.create_table()?;
    let of_call = Rc::clone(context);
    let call = lua.create_function(move |lua, args: MultiValue| {
        let mut context = of_call.borrow_mut();
        match run_command(&mut context, &args)? {
            Reply::Error(text) => {
                context.raised = Some(text.clone());
                Err(mlua::Error::runtime(text))
            }
            reply => value_of(lua, &reply),
        }
    })?;
    let of_try = Rc::clone(context);
    let pcall = lua.create_function(move |lua, args: MultiValue| {
        let reply = run_command(&mut of_try.borrow_mut(), &args)?;
        value_of(lua, &reply)
    })?;
    redis.set("call", call)?;
    redis.set("pcall", pcall)?;
    let error_reply = lua.create_function(|lua, text: LuaString| {
        let table = lua.create_table()?;
        table.set("err", text)?;
        Ok(table)
    })?;
    redis.set("error_reply", error_reply)?;
    globals.set("redis", redis)?;
    let guard = "setmetatable(_G, {
        __newindex = function(_, name) error('Attempt to modify a readonly table: ' .. name) end,
        __index = function(_, name) error('Script attempted to access nonexistent global variable ' .. name) end,
    })";
    lua.load(guard).exec()
}

fn run_command(context: &mut ScriptContext, args: &MultiValue) -> Result<Reply> {
    let command = args.iter().map(argument).collect::<Result<Vec<_>>>()?;
    if command.is_empty() {
        return Err(mlua::Error::runtime("a command was expected"));
    }
    let reply = context.keyspace.run(&command);
    Ok(reply.unwrap_or_else(|| Reply::error("ERR Unknown Redis command called from script")))
}

fn argument(value: &Value) -> Result<Vec<u8>> {
    match value {
        Value::String(text) => Ok(text.as_bytes().to_vec()),
        Value::Integer(number) => Ok(number.to_string().into_bytes()),
        // As Redis does: whole numbers without a point, others in full.
        Value::Number(number) => Ok(super::sorted_set::score_text(*number).into_bytes()),
        _ => Err(mlua::Error::runtime(
            "Lua redis lib command arguments must be strings or integers",
        )),
    }
}

/// Converts a reply for a script.
fn value_of(lua: &Lua, reply: &Reply) -> Result<Value> {
    let single = |name: &str, text: &str| -> Result<Value> {
        let table = lua.create_table()?;
        table.raw_set(name, text)?;
        Ok(Value::Table(table))
    };
    match reply {
        Reply::Status(text) => single("ok", text),
        Reply::Error(text) => single("err", text),
        Reply::Int(number) => Ok(Value::Integer(*number)),
        Reply::Bulk(bytes) => Ok(Value::String(lua.create_string(bytes)?)),
        Reply::Nil => Ok(Value::Boolean(false)),
        Reply::Array(items) | Reply::Map(items) | Reply::Push(items) => {
            let items = items.iter().map(|item| value_of(lua, item));
            let items = items.collect::<Result<Vec<_>>>()?;
            Ok(Value::Table(lua.create_sequence_from(items)?))
        }
    }
}

/// Converts what a script returns.
fn reply_of(value: Value) -> Result<Reply> {
    Ok(match value {
        Value::Nil | Value::Boolean(false) => Reply::Nil,
        Value::Boolean(true) => Reply::Int(1),
        Value::Integer(number) => Reply::Int(number),
        // Redis cuts the fraction off.
        Value::Number(number) => Reply::Int(number as i64),
        Value::String(text) => Reply::bulk(text.as_bytes()),
        Value::Table(table) => reply_of_table(&table)?,
        _ => Reply::Nil,
    })
}

fn reply_of_table(table: &Table) -> Result<Reply> {
    if let Some(error) = table.raw_get::<Option<LuaString>>("err")? {
        return Ok(Reply::Error(error.to_string_lossy()));
    }
    if let Some(status) = table.raw_get::<Option<LuaString>>("ok")? {
        return Ok(Reply::bulk(status.as_bytes()));
    }
    let items = table.sequence_values::<Value>();
    let items = items.map(|item| reply_of(item?));
    Ok(Reply::Array(items.collect::<Result<_>>()?))
}
