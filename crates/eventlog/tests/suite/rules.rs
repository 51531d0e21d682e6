//! The rules of fields: their text, their mistakes, and what they refuse.

use eventlog::{
    BrokenRule, FieldRules, FieldType, Fields, InvalidSchema, Name, QName, RecordId, Schema, Stamp,
    Table, TableKind, Value,
};

fn name(name: &str) -> Name {
    name.parse().unwrap()
}

fn text(text: &str) -> Value {
    Value::String(text.to_owned())
}

fn fields<const N: usize>(fields: [(&str, Value); N]) -> Fields {
    let mut all = Fields::new();
    for (field, value) in fields {
        all.insert(name(field), value);
    }
    all
}

const BILLS: &str = r#"
[tables."shop.Bill"]
kind = "WDoc"
fields.customer = { type = "string", required = true, immutable = true, max_length = 5 }
fields.cents = { type = "int64", min = 0, max = 500, default = 7 }
fields.state = { type = "string", one_of = ["open", "paid"] }
fields.rate = { type = "float32", min = 0.5 }
fields.share = { type = "float64", max = 1.0, immutable = true }
fields.seal = { type = "bytes", max_length = 2 }
fields.note = "string"
fields.of = { type = "ref", to = ["shop.Entry"] }
fields.at = { type = "int64", stamp = "changed" }
fields.day = { type = "string", from = "at", format = "yyyyMMdd" }

[tables."shop.Entry"]
kind = "WDoc"
append_only = true
"#;

fn bills() -> Schema {
    BILLS.parse().unwrap()
}

fn table(schema: &Schema, name: &str) -> Table {
    schema.table(&name.parse::<QName>().unwrap()).unwrap().clone()
}

#[test]
fn rules_in_toml_equal_rules_in_rust() {
    let customer = FieldRules {
        required: true,
        immutable: true,
        max_length: Some(5),
        ..FieldRules::default()
    };
    let cents = FieldRules {
        min: Some(Value::Int64(0)),
        max: Some(Value::Int64(500)),
        default: Some(Value::Int64(7)),
        ..FieldRules::default()
    };
    let state = FieldRules { one_of: vec![text("open"), text("paid")], ..FieldRules::default() };
    let rate = FieldRules { min: Some(Value::Float32(0.5)), ..FieldRules::default() };
    let share =
        FieldRules { max: Some(Value::Float64(1.0)), immutable: true, ..FieldRules::default() };
    let seal = FieldRules { max_length: Some(2), ..FieldRules::default() };
    let to = vec!["shop.Entry".parse().unwrap()];
    let day = Stamp::Date { of: name("at"), format: "yyyyMMdd".into(), zone: "UTC".into() };
    let mut bill = Table::new("shop.Bill".parse().unwrap(), TableKind::WDoc)
        .with_field(name("note"), FieldType::String)
        .with_field(name("at"), FieldType::Int64)
        .with_stamp(name("at"), Stamp::Changed)
        .with_field(name("day"), FieldType::String)
        .with_stamp(name("day"), day);
    for (field, holds, rules) in [
        ("customer", FieldType::String, customer),
        ("cents", FieldType::Int64, cents),
        ("state", FieldType::String, state),
        ("rate", FieldType::Float32, rate),
        ("share", FieldType::Float64, share),
        ("seal", FieldType::Bytes, seal),
        ("of", FieldType::Ref, FieldRules { to, ..FieldRules::default() }),
    ] {
        bill = bill.with_field(name(field), holds).with_rules(name(field), rules);
    }
    let entry = Table::new("shop.Entry".parse().unwrap(), TableKind::WDoc).append_only();
    assert_eq!(Schema::new([bill, entry]).unwrap(), bills());
}

/// The rules of a deployment could not change without another deployment.
#[test]
fn a_deployment_has_no_rules() {
    let deployed: Schema = bills().to_string().parse().unwrap();
    let has_some = |table: &Table| !table.rules().is_empty() || !table.stamps().is_empty();
    assert!(!deployed.tables().any(|table| has_some(table) || table.is_append_only()));
    bills().can_follow(&deployed).unwrap();
    deployed.can_follow(&bills()).unwrap();
}

#[test]
fn rules_that_do_not_fit_are_refused() {
    for (field, why) in [
        (r#"{ type = "int32", min = 5, max = 4 }"#, "`min` is above `max`"),
        (
            r#"{ type = "int32", min = 5, default = 4 }"#,
            "the value 4 of `default` must be at least 5",
        ),
        (
            r#"{ type = "string", one_of = ["a"], default = "b" }"#,
            "the value `b` of `default` must be one of `a`",
        ),
        (
            r#"{ type = "string", max_length = 1, one_of = ["ab"] }"#,
            "must have at most 1 characters, and has 2",
        ),
        (r#"{ type = "string", min = "a" }"#, "only a number can have `min` and `max`"),
        (r#"{ type = "int64", max_length = 3 }"#, "only a text or bytes can have `max_length`"),
        // The reader finds these, with their place.
        (r#"{ type = "int32", min = 3_000_000_000 }"#, "line 3, column"),
        (r#"{ type = "int32", default = "one" }"#, "line 3, column"),
        (r#"{ type = "ref", default = 7 }"#, "a reference and bytes cannot have this rule"),
        (r#"{ type = "string", one_of = [] }"#, "a list of one or more values is expected here"),
        (r#"{ type = "string", one_of = "a" }"#, "a list of one or more values is expected here"),
        (r#"{ type = "string", length = 3 }"#, "unknown key `length`"),
        ("{ required = true }", "missing key `type`"),
        (r#"{ type = "float64", default = nan }"#, "is not a finite number"),
        (r#"{ type = "int64", to = ["a.B"] }"#, "only a reference can have `to`"),
        (r#"{ type = "string", min = 1 }"#, "only a number can have `min` and `max`"),
        (r#"{ type = "ref", to = [] }"#, "a list of one or more tables is expected here"),
        (r#"{ type = "ref", to = "a.B" }"#, "a list of one or more tables is expected here"),
        (r#"{ type = "ref", to = ["a.C"] }"#, "`to` names a.C, which is not a table"),
        (r#"{ type = "int32", stamp = "created" }"#, "needs a field of the type int64"),
        (r#"{ type = "int64", stamp = "made" }"#, "unknown variant `made`"),
        (r#"{ type = "int64", stamp = "created", min = 0 }"#, "a stamp has no rules"),
        (r#"{ type = "string", from = "x", format = "yyyy" }"#, "must name a field of the table"),
        (r#"{ type = "string", from = "x" }"#, "either `stamp`, or `from` with `format`"),
        (r#"{ type = "string", zone = "UTC" }"#, "either `stamp`, or `from` with `format`"),
        (
            r#"{ type = "int64", stamp = "created", from = "x", format = "yy" }"#,
            "either `stamp`, or `from` with `format`",
        ),
    ] {
        let text = format!("[tables.\"a.B\"]\nkind = \"CDoc\"\nfields = {{ x = {field} }}");
        let error = text.parse::<Schema>().unwrap_err().to_string();
        assert!(error.contains(why), "{field}: {error}");
        assert!(!error.contains('\n'), "one mistake: {error}");
    }
    let rules = FieldRules { default: Some(text("one")), ..FieldRules::default() };
    let bare = Table::new("a.B".parse().unwrap(), TableKind::CDoc);
    let foreign =
        bare.clone().with_field(name("x"), FieldType::Int32).with_rules(name("x"), rules.clone());
    for table in [foreign, bare.with_rules(name("x"), rules)] {
        let refused = Schema::new([table]).unwrap_err();
        assert!(matches!(refused, InvalidSchema::Rule(..)), "{refused:?}");
    }
}

#[test]
fn a_new_record_is_judged_by_all_rules() {
    let bill = table(&bills(), "shop.Bill");
    let good = || fields([("customer", text("ärzte")), ("cents", Value::Int64(0))]);
    assert_eq!(bill.judge(None, &good()), Ok(()));
    for (field, value, why) in [
        ("customer", text("doctor"), "must have at most 5 characters, and has 6"),
        ("cents", Value::Int64(-1), "must be at least 0"),
        ("cents", Value::Int64(501), "must be at most 500"),
        ("state", text("Paid"), "must be one of `open`, `paid`"),
        ("rate", Value::Float32(0.25), "must be at least 0.5"),
        ("share", Value::Float64(1.5), "must be at most 1"),
        ("seal", Value::Bytes(vec![1; 3].into()), "must have at most 2 bytes, and has 3"),
    ] {
        let mut bad = good();
        bad.insert(name(field), value);
        let broken = BrokenRule::Field("shop.Bill".parse().unwrap(), name(field), why.to_owned());
        assert_eq!(bill.judge(None, &bad), Err(broken));
    }
    let mut empty = good();
    empty.remove("customer");
    let broken = bill.judge(None, &empty).unwrap_err().to_string();
    assert_eq!(broken, "the field `customer` of shop.Bill must have a value");
}

#[test]
fn a_default_fills_only_an_empty_field() {
    let bill = table(&bills(), "shop.Bill");
    let mut given = fields([("cents", Value::Int64(3))]);
    bill.fill_defaults(&mut given);
    assert_eq!(given, fields([("cents", Value::Int64(3))]));
    let mut empty = Fields::new();
    bill.fill_defaults(&mut empty);
    assert_eq!(empty, fields([("cents", Value::Int64(7))]));
}

/// A record that is older than its rules could not be changed at all.
#[test]
fn a_change_is_judged_by_the_rules_of_the_fields_that_it_changes() {
    let bill = table(&bills(), "shop.Bill");
    let old = fields([("cents", Value::Int64(-8)), ("state", text("lost"))]);
    let after = |field: &str, value| {
        let mut after = old.clone();
        match value {
            Some(value) => drop(after.insert(name(field), value)),
            None => drop(after.remove(field)),
        }
        bill.judge(Some(&old), &after).map_err(|broken| broken.to_string())
    };
    assert_eq!(after("note", Some(text("still here"))), Ok(()));
    assert_eq!(after("state", Some(text("paid"))), Ok(()), "it is corrected");
    assert_eq!(after("cents", None), Ok(()), "it need not have a value");
    assert_eq!(after("customer", Some(text("Ann"))), Ok(()), "an empty field is set once");
    let refused = after("cents", Some(Value::Int64(-7))).unwrap_err();
    assert!(refused.ends_with("must be at least 0"), "{refused}");

    let set = fields([("customer", text("Ann"))]);
    for changed in [fields([("customer", text("Bob"))]), Fields::new()] {
        let refused = bill.judge(Some(&set), &changed).unwrap_err().to_string();
        assert!(refused.ends_with("has a value already, and is immutable"), "{refused}");
    }
}

#[test]
fn a_record_of_an_append_only_table_never_changes() {
    let entry = table(&bills(), "shop.Entry");
    assert_eq!(entry.judge(None, &Fields::new()), Ok(()));
    let broken = BrokenRule::AppendOnly("shop.Entry".parse().unwrap());
    assert_eq!(entry.judge(Some(&Fields::new()), &Fields::new()), Err(broken));
}

/// Without its own rule a NaN passed: it is neither below `min` nor above `max`.
#[test]
fn no_limit_lets_nan_pass() {
    let bill = table(&bills(), "shop.Bill");
    let nan = fields([("customer", text("Ann")), ("rate", Value::Float32(f32::NAN))]);
    assert!(bill.judge(None, &nan).is_err());
}

#[test]
fn a_reference_points_to_an_active_record_of_its_tables() {
    let bill = table(&bills(), "shop.Bill");
    let (entry, other): (QName, QName) = ("shop.Entry".parse().unwrap(), "a.B".parse().unwrap());
    let judge = |field: &str, found: Option<(&QName, bool)>| {
        bill.judge_reference(&name(field), RecordId(7), found).map_err(|broken| broken.to_string())
    };
    assert_eq!(judge("of", Some((&entry, true))), Ok(()));
    assert_eq!(judge("any", Some((&other, true))), Ok(()), "a field without `to`");
    for (found, why) in [
        (None, "record 7, which does not exist in the workspace"),
        (Some((&entry, false)), "record 7 of shop.Entry, which is not active"),
        (Some((&other, true)), "record 7 of a.B, and must refer to shop.Entry"),
    ] {
        let refused = format!("the field `of` of shop.Bill refers to {why}");
        assert_eq!(judge("of", found), Err(refused));
    }
    let to = |id| fields([("of", Value::Ref(RecordId(id))), ("note", text("x"))]);
    let new = |before: Option<&Fields>| -> Vec<(String, u64)> {
        bill.new_references(before, &to(7))
            .map(|(field, id)| (field.as_str().to_owned(), id.0))
            .collect()
    };
    let one: Vec<_> = vec![("of".to_owned(), 7)];
    let hidden = fields([("gone", Value::Ref(RecordId(7)))]);
    assert_eq!(bill.new_references(None, &hidden).count(), 0, "the tables leave it out");
    assert_eq!([new(None), new(Some(&to(8))), new(Some(&to(7)))], [one.clone(), one, vec![]]);
}

/// A NaN is not equal to itself, so a record with one could not be changed in any field.
#[test]
fn a_nan_from_before_a_rule_stays_and_hinders_no_other_change() {
    let bill = table(&bills(), "shop.Bill");
    let nan = || fields([("rate", Value::Float32(f32::NAN)), ("share", Value::Float64(f64::NAN))]);
    let mut noted = nan();
    noted.insert(name("note"), text("late"));
    assert_eq!(bill.judge(Some(&nan()), &noted), Ok(()));
    noted.insert(name("share"), Value::Float64(0.5));
    let refused = bill.judge(Some(&nan()), &noted).unwrap_err().to_string();
    assert!(refused.ends_with("has a value already, and is immutable"), "{refused}");
}
