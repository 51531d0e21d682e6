//! The rules for a schema, for its records, and for the schema that follows it.

use eventlog::{
    FieldType, Fields, IncompatibleSchema, InvalidRecord, InvalidSchema, Name, Parent, QName,
    Record, RecordId, Schema, Table, TableKind, Value,
};

const SHOP: &str = r#"
[tables."shop.Article"]
kind = "CDoc"
fields = { name = "string", picture = "bytes" }
containers = { prices = "shop.Price" }

[tables."shop.Price"]
kind = "CRecord"
fields = { cents = "int64", until = "int64", "of" = "ref", what = "qname" }
containers = { exceptions = "shop.Price" }

[tables."shop.Order"]
kind = "ODoc"
fields = { table = "int32", is_paid = "bool", tip = "float32", sum = "float64" }
numbers = { number = "order" }
sequences = { serial = "Receipt" }

[tables."shop.Settings"]
kind = "Singleton"
id = 65536

[sequences.Shop]
Receipt = 256
"#;

fn shop() -> Schema {
    SHOP.parse().unwrap()
}

fn qname(name: &str) -> QName {
    name.parse().unwrap()
}

fn name(name: &str) -> Name {
    name.parse().unwrap()
}

#[test]
fn a_schema_in_toml_equals_the_schema_in_rust() {
    use FieldType::{Bool, Bytes, Float32, Float64, Int32, Int64, QName, Ref, String};
    let table = |table: &str, kind, fields: &[(&str, FieldType)]| {
        let table = Table::new(qname(table), kind);
        fields.iter().fold(table, |table, (field, holds)| table.with_field(name(field), *holds))
    };
    let article = table("shop.Article", TableKind::CDoc, &[("name", String), ("picture", Bytes)]);
    let price = [("cents", Int64), ("until", Int64), ("of", Ref), ("what", QName)];
    let price = table("shop.Price", TableKind::CRecord, &price);
    let order = [("table", Int32), ("is_paid", Bool), ("tip", Float32), ("sum", Float64)];
    let order = table("shop.Order", TableKind::ODoc, &order);
    let tables = [
        article.with_container(name("prices"), qname("shop.Price")),
        price.with_container(name("exceptions"), qname("shop.Price")),
        order.with_number(name("number"), "ORDER").with_sequence(name("serial"), name("Receipt")),
        Table::singleton(qname("shop.Settings"), RecordId(65_536)),
    ];
    let schema = Schema::new(tables).unwrap().with_sequence("Shop", name("Receipt"), 256);
    assert_eq!(schema, shop());
}

fn refused(text: &str) -> InvalidSchema {
    text.parse::<Schema>().unwrap_err()
}

#[test]
fn an_invalid_schema_text_is_refused_with_its_line() {
    for (text, line, what) in [
        ("\n[tables.\"a.B\"]\nkind = \"Doc\"", "line 3", "unknown variant `Doc`"),
        (
            "[tables.\"a.B\"]\nkind = \"CDoc\"\nfields = { x = \"text\" }",
            "line 3",
            "unknown variant `text`",
        ),
        ("[tables.\"a.B\"]\nkind = \"CDoc\"\nfield = {}", "line 3", "unknown key `field`"),
        ("[tables.B]\nkind = \"CDoc\"", "line 1", "`B` is not a name"),
        (
            "[tables.\"a.B\"]\nkind = \"CDoc\"\nfields = { \"a-b\" = \"bool\" }",
            "line 3",
            "`a-b` is not a name",
        ),
        ("[tables.\"a.B\"]\nfields = {}", "line 1", "missing key `kind`"),
        ("[table.\"a.B\"]\nkind = \"CDoc\"", "line 1", "unknown key `table`"),
        ("[tables.\"a.B\"", "line 1", "]"),
    ] {
        let why = refused(text).to_string();
        assert!(why.contains(line) && why.contains(what), "{text}: {why}");
    }
}

#[test]
fn tables_that_do_not_fit_together_are_refused() {
    let (a, b, c) = (qname("p.A"), qname("p.B"), name("c"));
    let table = |table: &str, kind: &str, more: &str| {
        format!("[tables.\"{table}\"]\nkind = \"{kind}\"\n{more}\n")
    };
    let holds = "containers = { c = \"p.B\" }";
    assert_eq!(
        refused(&table("p.A", "CDoc", holds)),
        InvalidSchema::UnknownTable(a.clone(), c.clone(), b.clone())
    );
    for (document, record) in
        [("CDoc", "WRecord"), ("WDoc", "CRecord"), ("ODoc", "ODoc"), ("Singleton", "CDoc")]
    {
        let id = if document == "Singleton" { "id = 65536\n" } else { "" };
        let text = table("p.A", document, &format!("{id}{holds}")) + &table("p.B", record, "");
        let why = refused(&text);
        assert!(matches!(why, InvalidSchema::WrongKind(..)), "{document} {record}: {why}");
        assert!(why.to_string().contains(record), "{why}");
    }
    let (field, number) = ("fields = { c = \"bool\" }", "numbers = { c = \"s\" }");
    let sequence = "sequences = { c = \"S\" }";
    for (one, other) in [
        (field, holds),
        (field, number),
        (number, holds),
        (field, sequence),
        (number, sequence),
        (sequence, holds),
    ] {
        let both = table("p.A", "CDoc", &format!("{one}\n{other}"));
        let both = both + &table("p.B", "CRecord", "");
        assert_eq!(refused(&both), InvalidSchema::SameName(a.clone(), c.clone()));
    }
    assert_eq!(refused(&table("p.A", "Singleton", "")), InvalidSchema::NoId(a.clone()));
    assert_eq!(
        refused(&table("p.A", "CDoc", "id = 65536")),
        InvalidSchema::NotSingleton(a.clone())
    );
    for id in [65_535, 66_048] {
        let refused = refused(&table("p.A", "Singleton", &format!("id = {id}")));
        assert_eq!(refused, InvalidSchema::Id(a.clone(), id));
    }
    let same = table("p.A", "Singleton", "id = 66047") + &table("p.B", "Singleton", "id = 66047");
    assert_eq!(refused(&same), InvalidSchema::SameId(a.clone(), b, 66_047));
    let twice = [Table::new(a.clone(), TableKind::CDoc), Table::new(a.clone(), TableKind::CDoc)];
    assert_eq!(Schema::new(twice).unwrap_err(), InvalidSchema::Twice(a));
}

fn article() -> Record {
    Record {
        table: qname("shop.Article"),
        kind: TableKind::CDoc,
        id: RecordId(1),
        parent: None,
        is_active: true,
        fields: [(name("name"), Value::String("tea".to_owned()))].into(),
    }
}

fn price() -> Record {
    let parent = Parent { id: RecordId(1), container: name("prices") };
    Record {
        table: qname("shop.Price"),
        kind: TableKind::CRecord,
        id: RecordId(2),
        parent: Some(parent),
        is_active: true,
        fields: [(name("cents"), Value::Int64(250))].into(),
    }
}

#[test]
fn a_record_that_does_not_fit_its_table_is_refused_with_a_reason() {
    let (schema, shop_article) = (shop(), qname("shop.Article"));
    let of_article = Some(&shop_article);
    schema.check(&article(), None).unwrap();
    schema.check(&price(), of_article).unwrap();
    let why = |record: Record, parent| schema.check(&record, parent).unwrap_err();
    let table = qname("shop.None");
    let none = why(Record { table: table.clone(), ..article() }, None);
    assert_eq!(none, InvalidRecord::UnknownTable(table));
    let kind = why(Record { kind: TableKind::WDoc, ..article() }, None);
    assert_eq!(kind, InvalidRecord::Kind(shop_article.clone(), TableKind::CDoc, TableKind::WDoc));
    let order = |number| Record {
        table: qname("shop.Order"),
        kind: TableKind::ODoc,
        fields: [(name("number"), number)].into(),
        ..article()
    };
    schema.check(&order(Value::String("O-1".to_owned())), None).unwrap();
    let (of_order, text, int) = (qname("shop.Order"), FieldType::String, FieldType::Int64);
    let held = why(order(Value::Int64(1)), None);
    assert_eq!(held, InvalidRecord::FieldType(of_order.clone(), name("number"), text, int));
    let fields = [(name("serial"), Value::String("1".to_owned()))].into();
    let held = why(Record { fields, ..order(Value::Bool(true)) }, None);
    assert_eq!(held, InvalidRecord::FieldType(of_order, name("serial"), int, text));
    let settings = Record {
        table: qname("shop.Settings"),
        kind: TableKind::Singleton,
        fields: [].into(),
        ..article()
    };
    schema.check(&Record { id: RecordId(65_536), ..settings.clone() }, None).unwrap();
    let id = why(settings.clone(), None);
    assert_eq!(id, InvalidRecord::SingletonId(settings.table, 65_536, 1));
    let nowhere = InvalidRecord::NoParent(qname("shop.Price"));
    assert_eq!(why(Record { parent: None, ..price() }, None), nowhere);
    assert_eq!(why(price(), None), nowhere);
    let inside = Record { parent: price().parent, ..article() };
    assert_eq!(why(inside, of_article), InvalidRecord::DocumentWithParent(shop_article.clone()));
    let elsewhere = Parent { id: RecordId(1), container: name("name") };
    let elsewhere = why(Record { parent: Some(elsewhere), ..price() }, of_article);
    let expected =
        InvalidRecord::UnknownContainer(shop_article.clone(), name("name"), qname("shop.Price"));
    assert_eq!(elsewhere, expected);
    let field = why(Record { fields: price().fields, ..article() }, None);
    assert_eq!(field, InvalidRecord::UnknownField(shop_article.clone(), name("cents")));
    let held = [(name("name"), Value::Int64(1))].into();
    let held = why(Record { fields: held, ..article() }, None);
    let expected =
        InvalidRecord::FieldType(shop_article, name("name"), FieldType::String, FieldType::Int64);
    assert_eq!(held, expected);
}

#[test]
fn a_schema_may_only_add_tables_and_fields() {
    let earlier = shop();
    let follows = |text: &str| text.parse::<Schema>().unwrap().can_follow(&earlier);
    follows(SHOP).unwrap();
    follows(&SHOP.replace("name = \"string\"", "name = \"string\", code = \"int32\"")).unwrap();
    follows(&SHOP.replace("name = \"string\",", "")).unwrap();
    follows(&SHOP.replace("{ number =", "{ second = \"order\", number =")).unwrap();
    follows(&SHOP.replace("\"order\"", "\"Order\"")).unwrap();
    follows(&format!("{SHOP}\n[tables.\"shop.New\"]\nkind = \"WDoc\"")).unwrap();
    let (article, order) = (qname("shop.Article"), qname("shop.Order"));
    follows(&SHOP.replace("{ serial =", "{ second = \"Receipt\", serial =")).unwrap();
    follows(&SHOP.replace("Receipt = 256", "Receipt = 256\nVisit = 300")).unwrap();
    follows(&format!("{SHOP}\n[sequences.Store]\nReceipt = 300")).unwrap();
    let number = IncompatibleSchema::Number(order.clone(), name("number"), "order".to_owned());
    let (serial, receipt) = (name("serial"), name("Receipt"));
    let serial = IncompatibleSchema::SequenceField(order.clone(), serial, receipt.clone());
    let sequence = IncompatibleSchema::Sequence("Shop".to_owned(), receipt, 256);
    for (was, is, why) in [
        ("numbers = { number = \"order\" }", "", number.clone()),
        ("{ number =", "{ code =", number.clone()),
        ("\"order\"", "\"offer\"", number),
        ("sequences = { serial = \"Receipt\" }", "", serial.clone()),
        ("{ serial =", "{ code =", serial.clone()),
        ("\"Receipt\"", "\"Visit\"", serial),
        ("Receipt = 256", "", sequence.clone()),
        ("Receipt = 256", "Receipt = 257", sequence.clone()),
        ("Receipt = 256", "Visit = 256", sequence.clone()),
        ("[sequences.Shop]", "[sequences.Store]", sequence),
        ("shop.Order", "shop.Other", IncompatibleSchema::TableGone(order.clone())),
        (
            "\"ODoc\"",
            "\"WDoc\"",
            IncompatibleSchema::Kind(order.clone(), TableKind::ODoc, TableKind::WDoc),
        ),
        ("65536", "65537", IncompatibleSchema::Id(qname("shop.Settings"), 65_536)),
        (
            "name = \"string\", picture = \"bytes\" }\ncontainers = {",
            "picture = \"bytes\" }\ncontainers = { name = \"shop.Price\",",
            IncompatibleSchema::NameOfField(article.clone(), name("name"), FieldType::String),
        ),
        (
            "table = \"int32\", is_paid = \"bool\", tip = \"float32\", sum = \"float64\" }\nnumbers = {",
            "is_paid = \"bool\", tip = \"float32\", sum = \"float64\" }\nnumbers = { table = \"order\",",
            IncompatibleSchema::NameOfField(order.clone(), name("table"), FieldType::Int32),
        ),
        (
            "table = \"int32\", is_paid = \"bool\", tip = \"float32\", sum = \"float64\" }\nnumbers = { number = \"order\" }\nsequences = {",
            "is_paid = \"bool\", tip = \"float32\", sum = \"float64\" }\nnumbers = { number = \"order\" }\nsequences = { table = \"Receipt\",",
            IncompatibleSchema::NameOfField(order.clone(), name("table"), FieldType::Int32),
        ),
        (
            "name = \"string\"",
            "name = \"bytes\"",
            IncompatibleSchema::Retyped(
                article.clone(),
                name("name"),
                FieldType::String,
                FieldType::Bytes,
            ),
        ),
        (
            "{ prices",
            "{ costs",
            IncompatibleSchema::Container(article, name("prices"), qname("shop.Price")),
        ),
    ] {
        assert_eq!(follows(&SHOP.replacen(was, is, 1)), Err(why));
    }
}

#[test]
fn a_schema_is_read_back_from_its_text() {
    let schema = shop();
    let text = schema.to_string();
    assert_eq!(text.parse::<Schema>().unwrap(), schema, "{text}");
    assert_eq!(Schema::default().to_string().parse::<Schema>().unwrap(), Schema::default());
}

/// Only the first mistake was reported. So an operator with five mistakes started the node six
/// times.
#[test]
fn all_mistakes_of_a_schema_are_reported_at_once() {
    let text = r#"
[tables."shop.Article"]
kind = "CDok"
fields = { name = "text", "a-b" = "bool", cents = "int64", left = 5 }
column = {}

[tables."shop.Bill"]
kind = "WDoc"
id = 65600
fields = { lines = "int64" }
containers = { lines = "shop.Line", items = "shop.Article", rests = "shop.Rest" }

[tables."shop.Line"]
fields = { article = "ref" }

[tables."shop.Settings"]
kind = "Singleton"
id = "one"

[tables."shop.Limits"]
kind = "Singleton"

[tables.Order]
kind = "ODoc"
"#;
    let why = refused(text).to_string();
    let lines: Vec<&str> = why.lines().collect();
    let expected = [
        ("line 3, column 8: ", "unknown variant `CDok`"),
        ("line 4, column 19: ", "unknown variant `text`"),
        ("line 4, column 27: ", "`a-b` is not a name"),
        ("line 4, column 67: ", "wanted string or table"),
        ("line 5, column 1: ", "unknown key `column`, expected one of `kind`, `id`, `append_only`"),
        ("line 13, column 9: ", "missing key `kind`"),
        ("line 18, column 6: ", "invalid type: string \"one\""),
        ("line 23, column 9: ", "`Order` is not a name"),
        ("", "the table shop.Bill has the name `lines` twice"),
        // The tables with mistakes exist, and their kinds are not known.
        ("", "the container `rests` of shop.Bill is for records of shop.Rest, but"),
        ("", "the table shop.Bill has an id, but is not a singleton"),
        ("", "the singleton shop.Limits has no id"),
    ];
    assert_eq!(lines.first(), Some(&"12 mistakes:"), "{why}");
    assert_eq!(lines.len(), 1 + expected.len(), "{why}");
    for (line, (place, what)) in lines[1..].iter().zip(expected) {
        assert!(line.starts_with(&format!("- {place}")) && line.contains(what), "{line}: {what}");
    }
}

#[test]
fn all_differences_from_the_deployed_schema_are_reported_at_once() {
    let next = SHOP
        .replace("name = \"string\", picture = \"bytes\"", "picture = \"string\"")
        .replace("\"ODoc\"", "\"WDoc\"")
        .replace("numbers = { number = \"order\" }", "")
        .replace("Receipt = 256", "Receipt = 257");
    let why = next.parse::<Schema>().unwrap().can_follow(&shop()).unwrap_err().to_string();
    let lines: Vec<&str> = why.lines().collect();
    let expected = [
        "4 mistakes:",
        "- the field `picture` of shop.Article was of type bytes, and cannot become string: leave it \
         as it is, and add a field with another name",
        "- the table shop.Order was of kind ODoc, and cannot become WDoc: make a new table",
        "- the number field `number` of shop.Order had numbers of the series `order`: declare it in \
         the same way again",
        "- the sequence `Receipt` of workspaces of the kind `Shop` had the id 256: declare it with \
         this id again",
    ];
    assert_eq!(lines, expected, "{why}");
}

#[test]
fn an_int32_is_read_as_the_int64_that_its_field_became() {
    let schema: Schema =
        "[tables.\"a.B\"]\nkind = \"CDoc\"\nfields = { wide = \"int64\", small = \"int32\" }"
            .parse()
            .unwrap();
    let table = schema.table(&qname("a.B")).unwrap();
    let mut fields: Fields = ["gone", "small", "wide"]
        .map(|field| (name(field), Value::Int32(-5)))
        .into_iter()
        .collect();
    table.widen(&mut fields);
    let values: Vec<_> = fields.iter().map(|(_, value)| value.clone()).collect();
    assert_eq!(values, [Value::Int32(-5), Value::Int32(-5), Value::Int64(-5)]);
}
