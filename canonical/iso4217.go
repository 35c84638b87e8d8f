package canonical

import "strings"

// minorUnits returns the exponent of a currency by ISO 4217 (list one, amendment 177): how many decimals its minor unit
// has. Codes for which the standard states none (metals, funds' units, tests) have no minor units.
func minorUnits(code string) (exponent int, ok bool) {
	if len(code) != 3 {
		return 0, false
	}
	for exponent, codes := range currenciesByExponent {
		for rest := codes; len(rest) >= 3; rest = strings.TrimPrefix(rest[3:], " ") {
			if rest[:3] == code {
				return exponent, true
			}
		}
	}
	return 0, false
}

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
