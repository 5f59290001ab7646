//! The functions `struct.pack` and `struct.unpack` of the server's Lua, for the formats that the
//! scripts use: little-endian whole numbers (`B`, `I1` to `I8`), doubles (`d`) and texts of a
//! fixed size (`c16`).

use mlua::{Lua, LuaString, MultiValue, Result, Table, Value, Variadic};

/// An item of a format.
enum Item {
    Whole(usize),
    Double,
    Text(usize),
}

/// Reads the next item of a format.
fn next_item(format: &mut &[u8]) -> Result<Option<Item>> {
    let Some((letter, mut rest)) = format.split_first() else {
        return Ok(None);
    };
    let mut size = 0;
    while let Some((digit @ b'0'..=b'9', after)) = rest.split_first() {
        size = size * 10 + usize::from(digit - b'0');
        rest = after;
    }
    *format = rest;
    match letter {
        b'<' => next_item(format),
        b'B' => Ok(Some(Item::Whole(1))),
        b'I' if (1..=8).contains(&size) => Ok(Some(Item::Whole(size))),
        b'd' => Ok(Some(Item::Double)),
        b'c' => Ok(Some(Item::Text(size))),
        _ => Err(mlua::Error::runtime("invalid format of struct")),
    }
}

fn number_of(value: Option<&Value>) -> Result<f64> {
    match value {
        // Below 2^53 in the scripts.
        Some(Value::Integer(number)) => Ok(*number as f64),
        Some(Value::Number(number)) => Ok(*number),
        Some(Value::String(text)) => {
            let text = text.to_str()?;
            let bad = |_| mlua::Error::runtime("bad argument to pack: number expected");
            text.trim().parse().map_err(bad)
        }
        _ => Err(mlua::Error::runtime(
            "bad argument to pack: number expected",
        )),
    }
}

fn pack(lua: &Lua, args: &MultiValue) -> Result<LuaString> {
    let mut args = args.iter();
    let Some(Value::String(format)) = args.next() else {
        return Err(mlua::Error::runtime(
            "bad argument to pack: format expected",
        ));
    };
    let format = format.as_bytes();
    let mut format: &[u8] = &format;
    let mut packed = Vec::with_capacity(64);
    while let Some(item) = next_item(&mut format)? {
        match item {
            Item::Whole(size) => {
                // As in C: a number that does not fit loses its upper bytes.
                let number = number_of(args.next())? as i64;
                packed.extend_from_slice(&number.to_le_bytes()[..size]);
            }
            Item::Double => packed.extend_from_slice(&number_of(args.next())?.to_le_bytes()),
            Item::Text(size) => {
                let Some(Value::String(text)) = args.next() else {
                    return Err(mlua::Error::runtime(
                        "bad argument to pack: string expected",
                    ));
                };
                let text = text.as_bytes();
                // `c0` takes the whole text.
                let size = if size == 0 { text.len() } else { size };
                let text = text.get(..size);
                packed.extend_from_slice(text.ok_or_else(too_short)?);
            }
        }
    }
    lua.create_string(&packed)
}

fn too_short() -> mlua::Error {
    mlua::Error::runtime("data string too short")
}

fn unpack(
    lua: &Lua,
    format: &LuaString,
    data: &LuaString,
    at: Option<usize>,
) -> Result<Variadic<Value>> {
    let (format, data) = (format.as_bytes(), data.as_bytes());
    let mut format: &[u8] = &format;
    let mut at = at.unwrap_or(1) - 1;
    let mut values = Variadic::with_capacity(16);
    while let Some(item) = next_item(&mut format)? {
        let size = match item {
            Item::Whole(size) | Item::Text(size) => size,
            Item::Double => 8,
        };
        let bytes = data.get(at..at + size).ok_or_else(too_short)?;
        at += size;
        values.push(match item {
            Item::Whole(_) => {
                let mut whole = [0; 8];
                whole[..size].copy_from_slice(bytes);
                Value::Number(u64::from_le_bytes(whole) as f64)
            }
            Item::Double => {
                let mut double = [0; 8];
                double.copy_from_slice(bytes);
                Value::Number(f64::from_le_bytes(double))
            }
            Item::Text(_) => Value::String(lua.create_string(bytes)?),
        });
    }
    values.push(Value::Number((at + 1) as f64));
    Ok(values)
}

/// Creates the table `struct`.
pub(super) fn library(lua: &Lua) -> Result<Table> {
    let table = lua.create_table()?;
    table.set(
        "pack",
        lua.create_function(|lua, args: MultiValue| pack(lua, &args))?,
    )?;
    let unpack = |lua: &Lua, (format, data, at): (LuaString, LuaString, Option<usize>)| {
        unpack(lua, &format, &data, at)
    };
    table.set("unpack", lua.create_function(unpack)?)?;
    Ok(table)
}
