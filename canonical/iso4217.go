package canonical

import "strings"

// minorUnits returns the exponent of a currency by ISO 4217 (list one, amendment 177): how many decimals its minor unit
// has. Codes for which the standard states none (metals, funds' units, tests) have no minor units.
func minorUnits(code []byte) (exponent int, ok bool) {
	if len(code) != 3 {
		return 0, false
	}
	// In upper case; many services write the codes in lower case.
	upper := [3]byte{code[0] &^ 0x20, code[1] &^ 0x20, code[2] &^ 0x20}
	for i, c := range upper {
		if c < 'A' || c > 'Z' || code[i]|0x20 != c|0x20 {
			return 0, false
		}
	}
	exponent, ok = exponents[string(upper[:])]
	return exponent, ok
}

var exponents = func() map[string]int {
	m := map[string]int{}
	for exponent, codes := range currenciesByExponent {
		for code := range strings.FieldsSeq(codes) {
			m[code] = exponent
		}
	}
	return m
}()

var currenciesByExponent = [...]string{
	0: "BIF CLP DJF GNF ISK JPY KMF KRW PYG RWF UGX UYI VND VUV XAF XOF XPF",
	2: "AED AFN ALL AMD ANG AOA ARS AUD AWG AZN BAM BBD BDT BGN BMD BND BOB BOV BRL BSD BTN BWP BYN BZD CAD CDF CHE CHF " +
		"CHW CNY COP COU CRC CUC CUP CVE CZK DKK DOP DZD EGP ERN ETB EUR FJD FKP GBP GEL GHS GIP GMD GTQ GYD HKD HNL HRK " +
		"HTG HUF IDR ILS INR IRR JMD KES KGS KHR KPW KYD KZT LAK LBP LKR LRD LSL MAD MDL MGA MKD MMK MNT MOP MRU MUR MVR " +
		"MWK MXN MXV MYR MZN NAD NGN NIO NOK NPR NZD PAB PEN PGK PHP PKR PLN QAR RON RSD RUB SAR SBD SCR SDG SEK SGD SHP " +
		"SLE SLL SOS SRD SSP STN SVC SYP SZL THB TJS TMT TOP TRY TTD TWD TZS UAH USD USN UYU UZS VED VES WST XCD XCG YER " +
		"ZAR ZMW ZWG ZWL",
	3: "BHD IQD JOD KWD LYD OMR TND",
	4: "CLF UYW",
}
