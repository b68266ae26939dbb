"""One table as institutions describe it, in every format that `dpiw init` reads."""

TABLE_SCHEMA = """{
  "fields": [
    {"name": "person", "type": "string"},
    {"name": "age", "type": "integer", "description": "completed years",
     "constraints": {"required": true, "minimum": 0, "maximum": 110}},
    {"name": "income", "type": "number", "decimalChar": ",", "groupChar": "."},
    {"name": "sex", "type": "string", "constraints": {"enum": ["f", "m"], "required": false}},
    {"name": "grade", "type": "integer", "categoriesOrdered": true,
     "categories": [{"value": 1, "label": "low"}, {"value": 2, "label": "high"}]},
    {"name": "smoker", "type": "boolean", "trueValues": ["ja"], "falseValues": ["nein"]},
    {"name": "seen", "type": "date", "format": "%d.%m.%Y"},
    {"name": "place", "type": "geopoint"}
  ],
  "missingValues": ["", "NA"],
  "primaryKey": ["person"]
}"""

DDI = """<?xml version="1.0" encoding="UTF-8"?>
<codeBook xmlns="ddi:codebook:2_5" version="2.5">
  <stdyDscr><citation><titlStmt><titl>Town survey</titl></titlStmt></citation></stdyDscr>
  <fileDscr ID="F1"><fileTxt><dimensns><caseQnty>4242</caseQnty></dimensns></fileTxt></fileDscr>
  <dataDscr>
    <var ID="V1" name="age" files="F1" intrvl="contin"><labl>completed years</labl>
      <valrng><range UNITS="INT" min="0" max="110"/></valrng>
      <invalrng><item VALUE="-9"/></invalrng>
      <sumStat type="min">0</sumStat><sumStat type="max">97</sumStat>
      <varFormat type="numeric"/></var>
    <var ID="V2" name="income" files="F1" intrvl="contin" dcml="2"><labl>euros</labl>
      <valrng><range min="17.5" max="424242"/></valrng>
      <sumStat type="min">17.5</sumStat><sumStat type="max">424242</sumStat>
      <varFormat type="numeric"/></var>
    <var ID="V3" name="sex" files="F1" intrvl="discrete"><labl>sex</labl>
      <catgry><catValu>1</catValu><labl>male</labl><catStat type="freq">4242</catStat></catgry>
      <catgry><catValu>2</catValu><labl>female</labl></catgry>
      <catgry missing="Y"><catValu>9</catValu><labl>unknown</labl></catgry>
      <varFormat type="numeric"/></var>
    <var ID="V4" name="seen" files="F1"><varFormat type="character" category="date"/></var>
  </dataDscr>
</codeBook>"""

SQL = """
SET client_encoding = 'UTF8';
CREATE TYPE public.grades AS ENUM ('low', 'high');
CREATE TABLE public.persons (
    person bigint NOT NULL,
    age integer NOT NULL CHECK (age >= 0 AND age < 111),
    income numeric(10,2) CHECK (income BETWEEN -500 AND 500000),
    sex character varying(1),
    grade grades NOT NULL,
    born date CHECK (born > DATE '1900-01-01'),
    seen timestamp without time zone DEFAULT now(),
    ill boolean,
    town varchar(40) CHECK (length(town) > 1),
    CONSTRAINT s CHECK (((sex)::text = ANY ((ARRAY['f'::character varying, 'm'])::text[]))),
    PRIMARY KEY (person)
);
COMMENT ON COLUMN public.persons.age IS 'completed years';
ALTER TABLE public.persons OWNER TO postgres;
"""
